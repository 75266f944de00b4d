"""The documented effect of each parameter, on a law of four tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vllm_gates.sampling.checks_law import Seen, edges, processed
from pytest_vllm_gates.sampling.types import Law, Parameters

LAW = Law.of({10: math.log(0.4), 11: math.log(0.3), 12: math.log(0.2), 13: math.log(0.1)})
TIED = Law.of({10: math.log(0.4), 11: math.log(0.2), 12: math.log(0.2), 13: math.log(0.2)})


def drawn(seen: Seen | None = None, offset: float = 0.0, **values: object) -> list[float]:
    parameters = Parameters(**values)  # type: ignore[arg-type]
    return [float(p) for p in np.exp(processed(LAW, parameters, seen or Seen(), offset))]


def test_neutral_parameters_change_nothing() -> None:
    assert drawn() == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_a_temperature_of_a_half_squares_the_probabilities() -> None:
    squares = [0.16, 0.09, 0.04, 0.01]
    assert drawn(temperature=0.5) == pytest.approx([square / 0.3 for square in squares])


@pytest.mark.parametrize(("top_p", "kept"), [(0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (1.0, 4)])
def test_top_p_keeps_the_token_that_reaches_it(top_p: float, kept: int) -> None:
    assert sum(p > 0 for p in drawn(top_p=top_p)) == kept


def test_top_p_counts_unreported_tokens() -> None:
    half = Law.of({10: math.log(0.2), 11: math.log(0.15), 12: math.log(0.15)}, among_others=True)
    assert half.mass == pytest.approx(0.5)
    logs = processed(half, Parameters(top_p=0.3))
    assert list(np.exp(logs)) == pytest.approx([0.2 / 0.35, 0.15 / 0.35, 0])
    assert np.isfinite(processed(half, Parameters(top_p=0.9))).all()


def test_top_k_keeps_the_likeliest() -> None:
    assert drawn(top_k=2) == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert drawn(top_k=4) == drawn(top_k=0)


def test_top_k_keeps_all_that_are_as_likely_as_the_last() -> None:
    logs = processed(TIED, Parameters(top_k=2))
    assert np.isfinite(logs).all()


def test_min_p_is_relative_to_the_likeliest() -> None:
    assert drawn(min_p=0.6) == pytest.approx([4 / 7, 3 / 7, 0, 0])


def test_min_p_comes_after_the_temperature() -> None:
    assert sum(p > 0 for p in drawn(min_p=0.6, temperature=2.0)) == 3


def test_a_bias_is_added_to_the_logit() -> None:
    assert drawn(logit_bias={13: math.log(4)}) == pytest.approx([4 / 13, 3 / 13, 2 / 13, 4 / 13])
    assert drawn(logit_bias={99: 5.0}) == drawn()


def test_nothing_but_allowed_tokens_is_left() -> None:
    assert drawn(allowed_token_ids=(11, 13)) == pytest.approx([0, 0.75, 0, 0.25])


def test_presence_counts_once_and_frequency_every_time() -> None:
    said = Seen(prompt=[11], output=[10, 10])
    e = math.exp(-2)
    assert drawn(said, presence_penalty=2.0)[0] == pytest.approx(0.4 * e / (0.4 * e + 0.6))
    assert drawn(said, frequency_penalty=1.0)[0] == pytest.approx(0.4 * e / (0.4 * e + 0.6))
    assert drawn(said, frequency_penalty=2.0)[0] < drawn(said, presence_penalty=2.0)[0]


def test_a_repetition_penalty_divides_positive_logits_and_counts_the_prompt() -> None:
    said = Seen(prompt=[11], output=[])
    shift = (math.log(0.3) + 10) * (1 / 2 - 1)
    weight = 0.3 * math.exp(shift)
    row = drawn(said, offset=10.0, repetition_penalty=2.0)
    assert row[1] == pytest.approx(weight / (0.7 + weight))


def test_a_repetition_penalty_multiplies_negative_logits() -> None:
    said = Seen(prompt=[], output=[11])
    weight = 0.3 * 0.3
    assert drawn(said, repetition_penalty=2.0)[1] == pytest.approx(weight / (0.7 + weight))


def test_several_offsets_give_a_row_each() -> None:
    offsets = np.array([[0.0], [10.0]])
    said = Seen(prompt=[11])
    rows = processed(LAW, Parameters(repetition_penalty=2.0), said, offsets)
    assert rows.shape == (2, 4)
    for row, offset in zip(rows, (0.0, 10.0), strict=True):
        assert list(np.exp(row)) == pytest.approx(drawn(said, offset, repetition_penalty=2.0))


def test_a_token_that_rounding_may_let_in_is_an_edge() -> None:
    assert edges(LAW, Parameters(top_p=0.4)) == {11}
    assert edges(LAW, Parameters(top_p=0.55)) == set()
    assert edges(TIED, Parameters(top_p=0.5)) == {11, 12, 13}
    assert edges(TIED, Parameters(top_k=2)) == {11, 12, 13}
    assert edges(LAW, Parameters(top_k=2)) == set()
    assert edges(LAW, Parameters(min_p=0.5)) == {12}
