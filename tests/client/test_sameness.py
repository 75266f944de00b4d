"""The same answer, an answer that differs by rounding, and another answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.client.sameness import MARGIN_NATS, compare

ALONE = Completion(
    content="one two three",
    finish_reason="stop",
    token_ids=(1, 2, 3),
    candidates=({1: -0.1, 9: -3.0}, {2: -0.7, 8: -0.8}, {3: -0.1}),
)


def other(**more: object) -> Completion:
    return replace(ALONE, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("invariant", [True, False])
def test_the_same_answer_has_no_fault(invariant: bool) -> None:
    sameness = compare(ALONE, other(candidates=()), invariant=invariant)
    assert (sameness.fault, sameness.parts_at) == (None, None)


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"error": "answered 503: busy"}, "no answer: answered 503: busy"),
        ({"content": "one"}, "alone 'one two three', now 'one', of the same tokens"),
        ({"content": "", "reasoning": "one two three"}, "of the same tokens"),
        ({"finish_reason": "length"}, "finish_reason: alone 'stop', now 'length'"),
        ({"content": "x", "token_ids": (7, 2, 3)}, "(from token 0 on"),
        ({"content": "one two", "token_ids": (1, 2)}, "(from token 2 on"),
    ],
)
def test_another_answer_is_a_fault(more: dict[str, object], sentence: str, invariant: bool) -> None:
    fault = compare(ALONE, other(**more), invariant=invariant).fault
    assert fault is not None
    assert sentence in fault


def test_a_fault_without_token_ids_names_no_token() -> None:
    for alone, now in ((ALONE, ()), (other(token_ids=()), (1, 2, 3))):
        sameness = compare(alone, other(content="x", token_ids=now), invariant=False)
        assert sameness.fault == "alone 'one two three', now 'x'"


def test_an_answer_that_ends_early_is_never_equivalent() -> None:
    fault = compare(ALONE, other(content="one two", token_ids=(1, 2)), invariant=False).fault
    assert fault == "alone 'one two three', now 'one two' (from token 2 on)"


def test_an_unlikely_token_is_a_fault_with_its_distance() -> None:
    completion = other(content="nine two three", token_ids=(9, 2, 3), candidates=())
    fault = compare(ALONE, completion, invariant=False).fault
    assert fault is not None
    assert "(from token 0 on, where that token was 2.90 nats less likely)" in fault


def test_rounding_tie_is_equivalent_unless_invariant() -> None:
    completion = other(content="one eight", token_ids=(1, 8), candidates=())
    sameness = compare(ALONE, completion, invariant=False)
    assert sameness.fault is None
    assert sameness.parts_at == 1
    assert sameness.behind_nats == pytest.approx(0.1)
    assert MARGIN_NATS == 0.5
    exact = replace(ALONE, candidates=({1: -0.25, 9: -0.75}, {}, {}))
    completion = other(content="nine two three", token_ids=(9, 2, 3), candidates=())
    assert compare(exact, completion, invariant=False).behind_nats == 0.5
    beyond = replace(ALONE, candidates=({1: -0.25, 9: -0.76}, {}, {}))
    assert compare(beyond, completion, invariant=False).fault is not None
    completion = other(content="one eight", token_ids=(1, 8), candidates=())
    assert compare(ALONE, completion, invariant=True).fault is not None


def test_the_candidates_of_either_answer_are_used() -> None:
    completion = other(content="one eight", token_ids=(1, 8), candidates=({}, {8: -0.6, 2: -0.9}))
    alone = replace(ALONE, candidates=())
    assert compare(alone, completion, invariant=False).parts_at == 1


def test_another_tool_call_is_another_answer() -> None:
    def answer(city: str, *tokens: int) -> Completion:
        calls = (("get_weather", f'{{"city": "{city}"}}'),)
        return Completion(finish_reason="tool_calls", calls=calls, token_ids=tokens)

    same = compare(answer("Paris", 1, 2), answer("Paris", 1, 2), invariant=True)
    assert (same.fault, same.parts_at) == (None, None)
    other = compare(answer("Paris", 1, 2), answer("Rome", 1, 3), invariant=True)
    assert other.fault is not None
    assert "Paris" in other.fault
    assert "Rome" in other.fault
    assert "from token 1 on" in other.fault
