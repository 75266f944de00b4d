"""Two runs of the same tokens are equivalent, different, or undecided, at stated odds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from numerics.forced_runs import FAULTS, changed, made, recorded
from pytest_vllm_gates.numerics import checks_paired
from pytest_vllm_gates.numerics.checks_paired import Comparison, Equivalence, ForcedPhase

if TYPE_CHECKING:
    from pytest_vllm_gates.numerics.forced_types import ForcedRun


def by_phase(trusted: ForcedRun, now: ForcedRun) -> dict[ForcedPhase, Comparison]:
    return {comparison.phase: comparison for comparison in checks_paired.compare(trusted, now)}


def test_run_is_equivalent_to_itself() -> None:
    comparisons = by_phase(recorded(), recorded())
    assert comparisons[ForcedPhase.ALONE].answer is Equivalence.EQUIVALENT
    assert comparisons[ForcedPhase.ALONE].tokens == 8 * 159
    assert comparisons[ForcedPhase.TOGETHER].answer is Equivalence.EQUIVALENT


@pytest.mark.parametrize("fault", FAULTS)
def test_recorded_fault_is_different(fault: str) -> None:
    comparison = by_phase(recorded(), recorded(fault))[ForcedPhase.ALONE]
    assert comparison.answer is Equivalence.DIFFERENT
    assert comparison.odds < 1e-6
    assert comparison.nats > 0.002


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3, 0.05, 0.5])
def test_noise_that_a_batch_makes_too_is_harmless(noise: float) -> None:
    for seed in range(40):
        runs = made(noise=noise, seed=2 * seed), made(noise=noise, seed=2 * seed + 1)
        answers = {comparison.answer for comparison in by_phase(*runs).values()}
        assert Equivalence.DIFFERENT not in answers
        assert by_phase(*runs)[ForcedPhase.ALONE].answer is Equivalence.EQUIVALENT


@pytest.mark.parametrize(("noise", "more"), [(0.0, 0.002), (0.01, 0.05), (0.05, 0.3)])
def test_more_noise_than_a_batch_makes_is_different(noise: float, more: float) -> None:
    for seed in range(20):
        now = made(noise=noise, seed=seed)
        off = made(noise=more, seed=seed + 1000)
        answers = {text.name: text for text in off.texts}
        spoilt = changed(
            now,
            alone=lambda text, off=answers: off[text.name].alone,
            together=lambda text, off=answers: off[text.name].alone,
        )
        assert by_phase(made(noise=noise, seed=-seed - 1), spoilt)[ForcedPhase.ALONE].answer is (
            Equivalence.DIFFERENT
        )


def flipped(run: ForcedRun, alone: int, together: int) -> ForcedRun:
    """Return a run in which every twentieth token went to another expert."""

    def scores(values: tuple[float, ...], first: int) -> tuple[float, ...]:
        return tuple(score - 3.0 * (at % 20 == first) for at, score in enumerate(values))

    return changed(
        run,
        alone=lambda text: scores(text.alone, alone),
        together=lambda text: scores(text.together, together),
    )


def test_tokens_that_go_to_other_experts_are_harmless_if_a_batch_does_it() -> None:
    runs = flipped(made(noise=0.01, seed=1), 3, 13), flipped(made(noise=0.01, seed=2), 8, 18)
    assert by_phase(*runs)[ForcedPhase.ALONE].answer is Equivalence.EQUIVALENT
    assert by_phase(*runs)[ForcedPhase.TOGETHER].answer is Equivalence.EQUIVALENT


def test_tokens_that_go_to_other_experts_are_different_if_a_batch_does_not() -> None:
    off = flipped(made(noise=0.01, seed=2), 8, 8)
    assert (
        by_phase(made(noise=0.01, seed=1), off)[ForcedPhase.ALONE].answer is Equivalence.DIFFERENT
    )


def test_error_behind_the_flips_of_experts_is_seen() -> None:
    trusted = flipped(made(noise=0.01, seed=1), 3, 13)
    off = flipped(made(noise=0.08, seed=2), 8, 18)
    assert by_phase(trusted, off)[ForcedPhase.ALONE].answer is Equivalence.DIFFERENT


def test_few_texts_are_undecided() -> None:
    few = made(texts=checks_paired.LEAST_TEXTS - 1)
    assert {comparison.answer for comparison in by_phase(few, few).values()} == {
        Equivalence.UNKNOWN
    }


def test_only_answers_up_to_the_first_parting_are_compared() -> None:
    trusted = made()
    parted = changed(
        made(), answer=lambda text: (*text.answer[:10], *[99] * 6),
        answer_logprobs=lambda text: (*text.answer_logprobs[:10], *[-9.0] * 6),
    )  # fmt: skip
    comparison = by_phase(trusted, parted)[ForcedPhase.ANSWER]
    assert (comparison.answer, comparison.tokens) == (Equivalence.EQUIVALENT, 12 * 10)


def test_error_while_answering_alone_is_seen() -> None:
    off = changed(made(), answer_logprobs=lambda text: tuple(s - 0.1 for s in text.answer_logprobs))
    answers = {phase: comparison.answer for phase, comparison in by_phase(made(), off).items()}
    assert answers[ForcedPhase.ANSWER] is Equivalence.DIFFERENT
    assert answers[ForcedPhase.ALONE] is Equivalence.EQUIVALENT


class TestOtherBuild:
    """Kernels of another build may round differently, which the batch's effect does not show."""

    NOW = replace(recorded("theta0.99"), build="0.33.0")

    def test_equal_scores_are_equivalent(self) -> None:
        comparison = by_phase(recorded(), replace(recorded(), build="0.33.0"))[ForcedPhase.ALONE]
        assert comparison.answer is Equivalence.EQUIVALENT

    def test_small_difference_is_undecided(self) -> None:
        assert by_phase(recorded(), self.NOW)[ForcedPhase.ALONE].answer is Equivalence.UNKNOWN
        other_machine = replace(recorded("theta0.99"), machine="Xeon")
        assert by_phase(recorded(), other_machine)[ForcedPhase.ALONE].answer is Equivalence.UNKNOWN

    def test_within_both_roundings_is_undecided(self) -> None:
        rounding = dict.fromkeys(("english", "python", "json", "chinese", "numbers", "repeats",
                                  "shell", "german"), 0.02)  # fmt: skip
        (alone, *_) = checks_paired.compare(recorded(), self.NOW, rounding)
        assert alone.answer is Equivalence.UNKNOWN

    def test_beyond_both_roundings_is_different(self) -> None:
        rounding = {text.name: 0.002 for text in recorded().texts}
        now = replace(recorded("kvfp8"), build="0.33.0")
        (alone, *_) = checks_paired.compare(recorded(), now, rounding)
        assert alone.answer is Equivalence.DIFFERENT


def test_declared_precision_is_reported() -> None:
    trusted, now = made(), replace(made(), declared={"kv_cache_dtype": "fp8"})
    assert list(checks_paired.other_flags(trusted, now)) == [
        "kv_cache_dtype was not given and is fp8"
    ]
    assert list(checks_paired.other_flags(now, now)) == []


def test_text_of_other_tokens_is_not_paired() -> None:
    other = changed(made(), ids=lambda text: text.ids if text.name != "text 3" else (1, *text.ids))
    names = [text.name for text, _ in checks_paired.paired(made(), other)]
    assert names == [f"text {number}" for number in range(12) if number != 3]


def test_alarms_of_several_looks_are_as_rare_as_of_one() -> None:
    trusted, now = recorded(), recorded("theta0.99")
    (once, *_) = checks_paired.compare(trusted, now)
    (many, *_) = checks_paired.compare(trusted, now, looks=2)
    assert once.odds == many.odds
    assert once.answer is Equivalence.DIFFERENT
    too_many = int(checks_paired.ALARM / checks_paired.TESTS / once.odds) + 1
    (rarer, *_) = checks_paired.compare(trusted, now, looks=too_many)
    assert rarer.answer is Equivalence.UNKNOWN
