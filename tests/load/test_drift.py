"""A figure that drifts over a soak is reported; one that only scatters is not."""

from __future__ import annotations

import random

import pytest

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.load import drift
from pytest_vllm_gates.load.types import SoakBlock

LIMITS = planned_traffic().limits
BLOCKS = 20


def soak(lost: float = 0.0, scatter: float = 0.01, grown: float = 0.0) -> list[SoakBlock]:
    """Return a soak that loses so much of its rate from end to end, and grows by so many bytes."""
    chance = random.Random(1)  # noqa: S311 - noise
    shares = [number / (BLOCKS - 1) for number in range(BLOCKS)]
    return [
        SoakBlock(
            at_s=60.0 * number,
            requests=100,
            failed=0,
            error="",
            output_tokens_per_s=400.0 * (1 - lost * share) * (1 + chance.gauss(0, scatter)),
            memory_bytes=round(2**31 + grown * share),
        )
        for number, share in enumerate(shares)
    ]


def judged(blocks: list[SoakBlock]) -> tuple[str, str]:
    soak_drift = drift.throughput(blocks)
    assert soak_drift
    loss = LIMITS.soak_loss
    return drift.losing(soak_drift, loss), drift.may_be_losing(soak_drift, loss)


def test_steady_rate_has_no_loss() -> None:
    assert judged(soak()) == ("", "")


def test_sinking_rate_is_reported_with_its_loss() -> None:
    wrong, _ = judged(soak(lost=0.4))
    assert "tokens a second are lost over the soak" in wrong
    assert "10% may be" in wrong


def test_scattered_rate_is_undecided() -> None:
    wrong, doubt = judged(soak(lost=0.08, scatter=0.3))
    assert not wrong
    assert "make the soak longer" in doubt


def test_single_bad_block_is_not_drift() -> None:
    blocks = soak()
    blocks[-1] = SoakBlock(1140.0, 100, 0, "", 40.0, 2**31)
    assert judged(blocks) == ("", "")


def test_loss_during_warm_up_does_not_count() -> None:
    blocks = soak()
    for number in range(4):
        at_s = blocks[number].at_s
        blocks[number] = SoakBlock(at_s, 100, 0, "", 4000.0 - 900 * number, 2**31)
    assert judged(blocks) == ("", "")


def test_growing_memory_is_reported() -> None:
    soak_drift = drift.memory(soak(grown=2.0**30))
    assert soak_drift
    assert "memory grows by" in drift.growing(soak_drift, LIMITS.soak_growth_mib)
    steady = drift.memory(soak())
    assert steady
    assert drift.growing(steady, LIMITS.soak_growth_mib) == ""


def test_too_few_blocks_have_no_drift() -> None:
    assert drift.throughput(soak()[:6]) is None


def test_unknown_memory_is_not_judged() -> None:
    unseen = [
        SoakBlock(block.at_s, block.requests, 0, "", block.output_tokens_per_s, None)
        for block in soak()
    ]
    assert drift.memory(unseen) is None


@pytest.mark.parametrize(("lost", "wrong"), [(0.05, False), (0.3, True)])
def test_loss_limit_comes_from_the_plan(lost: float, wrong: bool) -> None:
    limits = LIMITS.model_copy(update={"soak_loss": 0.2})
    soak_drift = drift.throughput(soak(lost=lost))
    assert soak_drift
    assert bool(drift.losing(soak_drift, limits.soak_loss)) is wrong
