"""The sentences of wrong seeds, limits and budgets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vllm_gates.sampling import checks
from pytest_vllm_gates.sampling.checks_odds import AuditOdds, SequentialTest
from pytest_vllm_gates.sampling.types import Parameters, Sample

ODDS = AuditOdds(1e-6 / 32, 1e-3)
RARE = math.log(0.05)


def answer(*tokens: int, finish: str = "length", logprob: float = RARE) -> Sample:
    return Sample(tokens, (logprob,) * len(tokens), finish_reason=finish)


SAME = [(answer(1, 2, 3, 4), answer(1, 2, 3, 4))] * 12
APART = [(answer(1, 2, 3, 4), answer(5, 2, 3, 4))] * 12


def test_equal_answers_repeat_and_other_answers_differ() -> None:
    assert checks.repeats(SAME, ODDS).passes
    assert checks.differs(APART, ODDS).passes


def test_other_answers_do_not_repeat_and_equal_ones_do_not_differ() -> None:
    assert checks.repeats(APART, ODDS).likeliest == "drawn anew"
    assert checks.repeats(APART, ODDS).fails
    assert checks.differs(SAME, ODDS).likeliest == "always the same"
    assert checks.differs(SAME, ODDS).fails


def test_answers_are_compared_up_to_the_first_other_token() -> None:
    assert checks.repeats(APART, ODDS).draws == 12
    assert checks.repeats(SAME, ODDS).draws == 48


def test_a_token_that_rounding_turned_is_not_a_fault() -> None:
    assert checks.repeats([*SAME, *APART[:1]], ODDS).passes


def test_sure_tokens_decide_nothing() -> None:
    sure = [(answer(1, logprob=-1e-6), answer(1, logprob=-1e-6))] * 12
    assert not checks.repeats(sure, ODDS).decided


def test_impossible_tokens_are_named() -> None:
    test = SequentialTest.between(["top_k is ignored"], ODDS)
    test.add([7, 8], np.array([-np.inf, 0.0]), {"top_k is ignored": np.array([-1.0, -1.0])})
    assert checks.sentence(test, "top_k", Parameters(top_k=5)) == (
        "top_k 5: 1 of 2 tokens are impossible with it, for example 7; "
        "it looks as if top_k is ignored"
    )


def test_odds_are_named() -> None:
    test = SequentialTest.between(["temperature is 0.9"], ODDS)
    test.add([1], np.array([-50.0]), {"temperature is 0.9": np.array([-1.0])})
    assert checks.sentence(test, "temperature", Parameters()) == (
        "temperature 1: 1 tokens come with odds of 10^21 to 1 as if temperature is 0.9"
    )


def test_a_test_that_does_not_fail_has_no_sentence() -> None:
    assert checks.sentence(SequentialTest.between(["x"], ODDS), "top_k", Parameters()) is None


def test_the_number_of_answers_is_counted() -> None:
    assert checks.count_fault([answer(1)] * 3, 3) is None
    assert checks.count_fault([answer(1)], 3) == "n 3: 1 answers came"


def test_a_limit_is_kept_to_the_token() -> None:
    assert checks.length_fault("max_tokens", [3, 3], 3) is None
    assert checks.length_fault("max_tokens", [3, 5, 4], 3) == (
        "max_tokens 3: answers have 4, 5 tokens although nothing else ends them"
    )


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([answer(1, 9, finish="stop")], None),
        ([answer(9, 1)], "stop_token_ids: 1 answers go on after token 9, which ends them"),
        ([answer(1, 9)], "an answer ends with token 9, and its finish_reason is 'length'"),
        ([answer(1, 2)] * 60, "none of 60 answers stops, and each had a probability of 0.30"),
        ([answer(1, 2)] * 10, None),
    ],
)
def test_a_stop_token_ends_an_answer(samples: list[Sample], says: str | None) -> None:
    fault = checks.stop_fault(samples, [9], 0.3, ODDS)
    assert fault == says or (says is not None and fault is not None and says in fault)


def test_nothing_stops_before_the_least_number_of_tokens() -> None:
    assert checks.least_fault([answer(1, 2, 3, 9, finish="stop")], 4) is None
    assert checks.least_fault([answer(1, 2)], 4) is None
    assert checks.least_fault([answer(9, finish="stop"), answer(1, 2)], 4) == (
        "min_tokens 4: 1 of 2 answers stop after 1 tokens"
    )


def test_reasoning_ends_where_its_tag_begins() -> None:
    assert checks.thought([1, 2, 7, 8, 3], [7, 8]) == 2
    assert checks.thought([1, 2, 7], [7, 8]) == 3
    assert checks.thought([], [7]) == 0


def test_a_budget_includes_the_tokens_of_the_tags() -> None:
    assert checks.budget_fault(50, 6, 2, 4) is None
    assert checks.budget_fault(50, 50, 2, 4) == (
        "thinking_token_budget 2: 50 tokens of reasoning, as without it: it is ignored"
    )
    assert checks.budget_fault(50, 20, 2, 4) == (
        "thinking_token_budget 2: 20 tokens of reasoning, 50 without it"
    )
