"""A difference is called by what makes such errors, and by nothing where nothing fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from numerics.forced_runs import changed, made, recorded
from pytest_vllm_gates.numerics.checks_paired import compare
from pytest_vllm_gates.numerics.checks_resemblance import NOTHING_KNOWN, resemblance

if TYPE_CHECKING:
    from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText


def named(trusted: ForcedRun, now: ForcedRun) -> str:
    return resemblance(trusted, now, compare(trusted, now))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("theta0.99", "positions, or the KV cache"),
        ("fp8", "in every token alike: the weights' precision"),
        ("int8", "in every token alike: the weights' precision"),
        ("kvfp8", "in every token alike: the weights' precision, a cast, or the cache's"),
    ],
)
def test_recorded_fault_is_named(fault: str, words: str) -> None:
    assert words in named(recorded(), recorded(fault))


def off(text: ForcedText, where: object) -> tuple[float, ...]:
    """Return the scores with an error at the tokens for which `where` is true."""
    return tuple(
        score - 0.3 * bool(where(at, score))  # type: ignore[operator]
        for at, score in enumerate(text.alone)
    )


def both(where: object) -> ForcedRun:
    return changed(
        made(), alone=lambda text: off(text, where), together=lambda text: off(text, where)
    )


def test_error_from_a_position_on_is_named() -> None:
    assert "from a position on" in named(made(), both(lambda at, _: at >= 64))


def test_error_on_rare_tokens_is_named() -> None:
    assert "on rare tokens above all" in named(made(), both(lambda _, score: score < -6))


def test_error_only_in_a_batch_is_named() -> None:
    now = changed(made(), together=lambda text: off(text, lambda *_: True))
    assert "only in a batch" in named(made(), now)


def test_error_while_answering_alone_is_named() -> None:
    now = changed(made(), answer_logprobs=lambda text: tuple(s - 1 for s in text.answer_logprobs))
    assert "only while answering" in named(made(), now)


def test_error_that_ebbs_away_is_none_of_these() -> None:
    assert named(made(), both(lambda at, _: at < 40)) == NOTHING_KNOWN
