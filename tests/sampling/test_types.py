"""The fields that a request sends, and the properties of a law."""

from __future__ import annotations

import math

import pytest

from pytest_vllm_gates.sampling.types import Law, Parameters


def test_all_parameters_are_sent_so_that_no_default_of_a_model_counts() -> None:
    assert Parameters().body() == {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0,
    }  # fmt: skip


def test_a_bias_is_sent_by_the_token_as_text() -> None:
    body = Parameters(logit_bias={7: 2.0}, allowed_token_ids=(7, 8)).body()
    assert body["logit_bias"] == {"7": 2.0}
    assert body["allowed_token_ids"] == [7, 8]


def test_a_law_is_sorted_and_adds_up() -> None:
    law = Law.of({4: math.log(0.1), 9: math.log(0.3)})
    assert list(law.ids) == [9, 4]
    assert law.probabilities == pytest.approx([0.75, 0.25])
    assert law.places == {9: 0, 4: 1}


def test_a_law_knows_which_of_its_tokens_are_among_others() -> None:
    law = Law.of({4: -1.0, 9: -0.5, 2: -3.0})
    assert list(law.among([2, 9, 77])) == [True, False, True]
    assert not law.among([]).any()


def test_a_law_of_equals_has_no_information_on_a_temperature() -> None:
    law = Law.of(dict.fromkeys(range(4), -1.0))
    assert law.information == pytest.approx(0.0)
    assert law.entropy == pytest.approx(math.log(4))
    assert Law.of({0: 0.0, 1: -3.0}).information > 0.3


def test_a_long_value_is_shown_by_its_length() -> None:
    parameters = Parameters(top_k=3, allowed_token_ids=(1, 2))
    assert parameters.told("top_k") == 3
    assert parameters.told("allowed_token_ids") == "2 tokens"
