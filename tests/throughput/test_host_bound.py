"""Boots whose GPU waits for its processor get a wider scatter, as four recorded boots show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog.plans import Block, BlockGroup, Pair, planned_throughput
from pytest_vllm_gates.throughput import decide, host_bound
from pytest_vllm_gates.throughput.decision import PRIMARY, Conclusion
from throughput.boot_noise import Noise

RECORDED = Path(__file__).parent.parent / "recorded" / "throughput" / "h100-qwen3.5.json"
WORK = {"concurrency": 16, "requests": 16, "prompt_tokens": 256, "output_tokens": 64}
PLAN = planned_throughput(WORK, {"against": {"groups": 20}})
WITHOUT_HOST_BOUND = PLAN.model_copy(update={"host_bound": None})
WAITED = "waited for the machine's processor, so this measures the processor's speed"


def boots() -> list[list[Block]]:
    """Return four boots of one bundle on one H100, within twenty minutes."""
    document: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    tokens = document["output_tokens"]
    return [
        [
            Block(
                "b", 0.0, tokens / pace, tokens, ttft_s, itl_s,
                context={host_bound.UTILIZATION: boot["gpu_utilization"]},
            )
            for pace, ttft_s, itl_s in boot["blocks"]
        ]
        for boot in document["boots"]
    ]  # fmt: skip


def pair(ours: list[Block], theirs: list[Block], *, side_by_side: bool) -> Pair:
    measured, reference = ours + ours, theirs + theirs
    groups = tuple(
        BlockGroup((measured[at], measured[at + 1]), (reference[at], reference[at + 1]))
        for at in range(0, 2 * PLAN.against.groups, 2)
    )
    return Pair(groups, side_by_side=side_by_side)


def test_boots_of_one_bundle_are_not_regressions() -> None:
    recorded, again, *_ = boots()
    decision_without = decide.against_baseline(again, [recorded], WITHOUT_HOST_BOUND)
    assert decision_without.answer is Conclusion.REGRESSION
    assert round(decision_without.as_evidence()["changes"][PRIMARY]["change"], 3) == -0.146
    decision = decide.against_baseline(again, [recorded], PLAN)
    assert decision.answer is Conclusion.INCONCLUSIVE
    assert decision.why == f"its GPU was busy 6% of the time and {WAITED}"
    assert WAITED in decision.sentence(PLAN.odds)


def test_every_boot_against_all_others_raises_no_alarm() -> None:
    all_boots = boots()
    for at, now in enumerate(all_boots):
        others = all_boots[:at] + all_boots[at + 1 :]
        for recorded in ([blocks] for blocks in others):
            assert decide.against_baseline(now, recorded, PLAN).answer is not Conclusion.REGRESSION
        assert decide.against_baseline(now, others, PLAN).answer is not Conclusion.REGRESSION


def test_half_the_pace_is_still_a_regression() -> None:
    recorded, again, *_ = boots()
    half = [replace(block, took_s=2 * block.took_s) for block in again]
    assert decide.against_baseline(half, [recorded], PLAN).answer is Conclusion.REGRESSION


@pytest.mark.parametrize("side_by_side", [True, False])
def test_only_sequential_boots_get_the_wider_scatter(*, side_by_side: bool) -> None:
    recorded, again, *_ = boots()
    two = [pair(again, recorded, side_by_side=side_by_side)] * 2
    decision = decide.against_lane(two, PLAN)
    assert (decision.answer is Conclusion.REGRESSION) == side_by_side
    assert (WAITED in decision.why) == (not side_by_side)
    measured = PLAN.calibrated(PLAN.against.pair_sd, 8)
    assert decide.against_lane(two, measured).answer is Conclusion.REGRESSION


def test_busy_gpu_keeps_the_planned_scatter() -> None:
    noise = Noise()
    for share in (0.5, 0.97):
        context = {host_bound.UTILIZATION: share}
        assert host_bound.of_boots([noise.boot(context=context)], PLAN) == (
            PLAN.baseline.boot_sd,
            "",
        )
    assert host_bound.of_boots([noise.boot()], PLAN) == (PLAN.baseline.boot_sd, "")
    assert host_bound.of_pairs([noise.pair()], PLAN) == (PLAN.against.pair_sd, "")


def test_wider_scatter_of_the_plan_counts() -> None:
    wide = dict.fromkeys(decide.SLOWDOWNS, 0.2)
    plan = planned_throughput(WORK, {"baseline": {"boot_sd": wide}})
    scatter, note = host_bound.of_boots(boots(), plan)
    assert (scatter, bool(note)) == (plan.baseline.boot_sd, True)
    bound = PLAN.host_bound
    assert bound and host_bound.of_boots(boots(), PLAN)[0] == bound.boot_sd
