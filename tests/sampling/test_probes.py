"""The values of a probe have an effect on the law, and no rounding blurs it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vllm_gates.sampling import probes
from pytest_vllm_gates.sampling.checks_law import edges, processed
from pytest_vllm_gates.sampling.types import Law, Parameters, SamplingProbe

BROAD = Law.of({token: -0.15 * token for token in range(60)})
NAMES = ["temperature", "temperature", "top_p", "top_k", "min_p", "logit_bias", "allowed_token_ids"]


def test_each_parameter_that_shapes_a_law_has_its_probe() -> None:
    assert [probe.name for probe in probes.shaping(BROAD)] == NAMES


@pytest.mark.parametrize("probe", [*probes.shaping(BROAD)])
def test_every_alternative_is_another_law(probe: SamplingProbe) -> None:
    due = np.exp(processed(BROAD, probe.asked))
    for name, other in probe.instead.items():
        apart = np.abs(np.exp(processed(BROAD, other)) - due).sum() / 2
        assert apart > 0.004, name


@pytest.mark.parametrize("probe", [*probes.shaping(BROAD)])
def test_no_token_is_at_the_edge_of_a_cut(probe: SamplingProbe) -> None:
    assert edges(BROAD, probe.asked) == set()


@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p"])
def test_a_cut_takes_away_and_leaves_enough_to_show(name: str) -> None:
    (probe,) = (probe for probe in probes.shaping(BROAD) if probe.name == name)
    kept = BROAD.probabilities[np.isfinite(processed(BROAD, probe.asked))].sum()
    assert probes.LEAST_CUT <= kept <= 1 - probes.LEAST_CUT


def test_a_law_of_equals_has_no_place_to_cut() -> None:
    flat = Law.of(dict.fromkeys(range(50), -1.0))
    assert not {"top_p", "top_k", "min_p"} & {probe.name for probe in probes.shaping(flat)}


def test_a_value_that_cuts_the_same_is_not_an_alternative() -> None:
    steep = Law.of({0: math.log(0.5), 1: math.log(0.3), 2: math.log(0.2)})
    (probe,) = (probe for probe in probes.shaping(steep) if probe.name == "top_p")
    assert list(probe.instead) == ["top_p is ignored"]


def test_a_bias_forbids_the_likeliest_and_favours_others() -> None:
    (probe,) = (probe for probe in probes.shaping(BROAD) if probe.name == "logit_bias")
    assert probe.asked.logit_bias[0] == probes.DOWN
    assert probes.UP in probe.asked.logit_bias.values()


def test_penalties_are_played_among_the_likeliest() -> None:
    tokens, *others = probes.windows(BROAD)
    assert tokens == tuple(range(probes.WINDOW))
    assert all(set(other).isdisjoint(tokens) for other in others)
    assert {probe.asked.allowed_token_ids for probe in probes.counting(tokens)} == {tokens}
    repeating = probes.repeating(tokens)
    assert set(repeating.asked.logit_bias) == set(tokens)
    assert repeating.instead["repetition_penalty is ignored"] == Parameters(
        logit_bias=repeating.asked.logit_bias
    )
