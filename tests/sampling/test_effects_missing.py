"""A sampling parameter that was accepted and ignored is found by its answer."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.sampling.effects import Effect, Generated, missing_effects


def generated(*ids: int, text: str = "It is cold.", **more: Any) -> Generated:
    return Generated(ids, text, more.pop("finish_reason", "length"), **more)


PLAIN = generated(7, 8, 9)


def faults_of(
    request: dict[str, Any], *choices: Generated, parameter: str = "one", **more: Any
) -> list[str]:
    return [*missing_effects(Effect(parameter, "whole", request, choices, **more))]


@pytest.mark.parametrize(
    ("request_", "choice"),
    [
        ({}, PLAIN),
        ({"logprobs": 2}, generated(7, 8, logprobs=(-0.1, -3.0), ranked=2)),
        ({"include_stop_str_in_output": True, "stop": ["is"]},
         generated(7, text="It is", finish_reason="stop")),
        ({"include_stop_str_in_output": True, "stop": ["is"]}, PLAIN),
    ],
)  # fmt: skip
def test_a_parameter_with_its_effect_has_no_fault(
    request_: dict[str, Any], choice: Generated
) -> None:
    assert faults_of(request_, choice) == []


@pytest.mark.parametrize(
    ("request_", "choice", "sentence"),
    [
        ({}, generated(), "nothing was generated"),
        ({}, generated(7, finish_reason=None), "the answer has no finish_reason"),
        ({"logprobs": 2}, PLAIN, "3 tokens came, log-probabilities of 0, and the best at 0 places"),
        ({"logprobs": 2}, generated(7, 8, logprobs=(-0.1, -0.2), ranked=1),
         "2 tokens came, log-probabilities of 2, and the best at 1 places"),
        ({"include_stop_str_in_output": True, "stop": ["is"]},
         generated(7, text="It ", finish_reason="stop"),
         "the answer is to end in its stop 'is', and ends in 'It '"),
    ],
)  # fmt: skip
def test_an_ignored_parameter_is_a_fault(
    request_: dict[str, Any], choice: Generated, sentence: str
) -> None:
    (fault,) = faults_of(request_, choice)
    assert fault.startswith(sentence)


def test_a_forbidden_token_is_a_fault() -> None:
    assert faults_of({}, PLAIN, parameter="bad_words", barred=frozenset({8})) == [
        "bad_words forbids token 8, and it came"
    ]
    assert faults_of({}, PLAIN, parameter="bad_words", barred=frozenset({6})) == []


def test_each_choice_is_judged() -> None:
    assert faults_of({"n": 2}, PLAIN, PLAIN) == []
    assert faults_of({"n": 2}, PLAIN) == ["2 choices were requested (n), and 1 came"]
    assert faults_of({}) == ["1 choices were requested (n), and 0 came"]
    assert faults_of({"n": 2}, PLAIN, generated()) == ["nothing was generated"]


def test_a_refusal_is_right_and_a_failure_is_a_fault() -> None:
    assert faults_of({"n": 2}, refused="not with speculation") == []
    assert faults_of({"n": 2}, failed="InternalServerError: dead") == [
        "the server fails: InternalServerError: dead"
    ]
