"""Distances of log-probabilities, their tolerances, and their golden."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.numerics import checks
from pytest_vllm_gates.numerics.types import ReferenceScores, Scores

BF16 = checks.tolerance_of("bfloat16")


def scores(logprobs: list[float], output: list[int] | None = None, lead: float = 5.0) -> Scores:
    output = output or []
    return Scores(
        prompt=tuple(range(len(logprobs) + 1)),
        prompt_logprobs=tuple(logprobs),
        output=tuple(output),
        output_logprobs=tuple(-0.1 for _ in output),
        leads=tuple(lead for _ in output),
    )


def test_rounding_is_not_a_fault() -> None:
    near = checks.prompt_distance(scores([-1.0, -2.02, -3.0]), scores([-1.01, -2.0, -3.0]))
    assert near.faults(BF16) == []


def test_one_position_far_off_is_named() -> None:
    far = checks.prompt_distance(scores([-1.0] * 500), scores([-1.0] * 499 + [-5.0]))
    assert far.worst_at == 499
    assert far.faults(BF16) == ["4.00 nats apart at position 499, 3.5 allowed"]


def test_one_stray_position_is_not_a_fault() -> None:
    flipped = checks.prompt_distance(scores([-1.0] * 500), scores([-1.0] * 499 + [-2.5]))
    assert flipped.faults(BF16) == []


def test_several_stray_positions_are_a_fault() -> None:
    off = checks.prompt_distance(scores([-1.0] * 100), scores([-1.0] * 97 + [-2.0] * 3))
    assert off.faults(BF16) == [
        "more than 1 of 100 positions are 1.00 nats off and more, 0.6 allowed"
    ]


@pytest.mark.parametrize(
    ("positions", "off", "within"),
    [
        (99, 1, 0.0),
        (99, 2, 1.0),
        (100, 1, 0.0),
        (100, 2, 1.0),
        (101, 2, 1.0),
        (200, 2, 0.0),
        (200, 3, 1.0),
        (50, 1, 0.0),
        (2, 2, 1.0),
        (1, 1, 1.0),
    ],
)
def test_nearly_all_is_the_99th_percentile(positions: int, off: int, within: float) -> None:
    served = scores([-1.0] * positions)
    distance = checks.prompt_distance(served, scores([-2.0] * off + [-1.0] * (positions - off)))
    assert (distance.positions, distance.nearly_all, distance.worst) == (positions, within, 1.0)
    assert distance.worst_at == 0


def test_an_empty_comparison_has_no_distance() -> None:
    empty = checks.prompt_distance(scores([]), scores([]))
    assert empty == checks.Distance(0, 0.0, 0.0, 0.0, None)
    assert empty.faults(BF16) == []
    with pytest.raises(ValueError, match="1 log-probabilities against 2"):
        checks.prompt_distance(scores([-1.0]), scores([-1.0, -1.0]))


def test_a_distance_at_the_tolerance_is_within_it() -> None:
    edge = checks.Distance(9, BF16.mean, BF16.nearly_all, BF16.worst, 3)
    assert edge.faults(BF16) == []


def test_a_small_shift_everywhere_is_seen_in_the_mean() -> None:
    shifted = checks.prompt_distance(scores([-1.0] * 50), scores([-1.2] * 50))
    assert shifted.faults(BF16) == ["mean distance 0.200 nats, 0.1 allowed"]


def test_another_token_than_a_certain_one_is_a_fault() -> None:
    parted = checks.output_distance(scores([], [1, 2, 9]), scores([], [1, 2, 3]), BF16)
    assert parted.diverges_at == 2
    assert parted.faults(BF16) == [
        "another token from output position 2 on, where the reference's lead was clear"
    ]


def test_another_token_in_doubt_is_not_a_fault() -> None:
    served, reference = scores([], [1, 9]), scores([], [1, 2], lead=0.01)
    assert checks.output_distance(served, reference, BF16).diverges_at is None
    for lead, diverges_at in ((2 * BF16.nearly_all, None), (2 * BF16.nearly_all + 0.01, 1)):
        reference = scores([], [1, 2], lead=lead)
        assert checks.output_distance(served, reference, BF16).diverges_at == diverges_at


def test_an_output_that_ends_early_is_a_fault() -> None:
    assert checks.output_distance(scores([], [1]), scores([], [1, 2]), BF16).diverges_at == 1
    assert checks.output_distance(scores([], [1, 2]), scores([], [1]), BF16).diverges_at == 1
    assert checks.output_distance(scores([], [1]), scores([], [1]), BF16).diverges_at is None


def test_a_wider_dtype_has_the_tighter_tolerance() -> None:
    assert checks.tolerance_of("float32").worst < checks.tolerance_of("float16").worst < BF16.worst
    assert checks.tolerance_of("fp8_e4m3") == BF16


@given(
    st.lists(st.floats(-20, 0), min_size=1, max_size=9),
    st.lists(st.integers(0, 99), max_size=5),
)
def test_a_golden_reads_back_as_it_was_written(logprobs: list[float], output: list[int]) -> None:
    case = scores(logprobs, output)
    written = checks.written("a title", ReferenceScores("sha", "torch 1", {"plain": case}))
    read = checks.parsed(written)
    assert read.source == "torch 1"
    assert read.cases["plain"].output == case.output
    assert read.cases["plain"].prompt_logprobs == pytest.approx(case.prompt_logprobs, abs=1e-4)
    assert read.cases["plain"].output_logprobs == pytest.approx(case.output_logprobs, abs=1e-4)
    assert read.cases["plain"].leads == case.leads


def test_a_golden_is_a_block_a_case() -> None:
    cases = {"plain": scores([-1.5], [3, 4]), "none": scores([-2.0])}
    assert checks.written("title", ReferenceScores("sha", "torch 1", cases)).splitlines() == [
        "golden 1: numerics: title",
        "",
        "weights sha",
        "source torch 1",
        "",
        "case plain",
        "prompt 0 1",
        "prompt_logprobs -1.5000",
        "output 3 4",
        "output_logprobs -0.1000 -0.1000",
        "leads 5.0000 5.0000",
        "",
        "case none",
        "prompt 0 1",
        "prompt_logprobs -2.0000",
        "output",
        "output_logprobs",
        "leads",
        "",
        "end of golden",
    ]


def test_a_golden_with_a_figure_too_few_is_corrupt() -> None:
    text = checks.written("title", ReferenceScores("sha", "torch", {"plain": scores([-1.0, -2.0])}))
    message = "read: a case has different numbers of log-probabilities and of tokens$"
    with pytest.raises(CorruptGolden, match=message):
        checks.parsed(text.replace(" -2.0000", ""))


@pytest.mark.parametrize("spoilt", ["logprobs", "weights", "output "])
def test_a_golden_that_lacks_a_line_is_corrupt(spoilt: str) -> None:
    golden = checks.written(
        "title", ReferenceScores("sha", "torch", {"plain": scores([-1.0], [3])})
    )
    lines = [line for line in golden.splitlines() if spoilt not in line]
    with pytest.raises(CorruptGolden, match="cannot be read"):
        checks.parsed("\n".join(lines))
