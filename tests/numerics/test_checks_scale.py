"""The difference of two healthy machines is measured, stated in a lane's file, and harmless
then."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from numerics.forced_runs import changed, made
from pytest_vllm_gates.catalog.scales import HarmlessNats, NumericScales
from pytest_vllm_gates.numerics import checks_scale
from pytest_vllm_gates.numerics.checks_paired import Equivalence, compare

if TYPE_CHECKING:
    from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText


def elsewhere(noise: float, seed: int = 5) -> ForcedRun:
    """Return a run of another machine, with independent noise in every score."""
    off = {text.name: text for text in made(noise=noise, seed=seed).texts}

    def of(field: str) -> object:
        return lambda text: getattr(off[text.name], field)

    run = changed(
        made(), alone=of("alone"), together=of("alone"), answer_logprobs=of("answer_logprobs")
    )
    return replace(run, machine="another")


def answers(trusted: ForcedRun, now: ForcedRun, scale: HarmlessNats | None) -> set[Equivalence]:
    return {each.answer for each in compare(trusted, now, None, scale)}


def test_machines_that_differ_are_undecided_without_a_scale() -> None:
    assert answers(made(), elsewhere(0.05), None) == {Equivalence.UNKNOWN}


def test_machines_that_differ_as_measured_are_equivalent() -> None:
    scale = checks_scale.between_machines(made(), elsewhere(0.05))
    assert scale.nats == pytest.approx(0.05 * 0.8, rel=0.15)  # the mean of |x|, x normal
    assert scale.closest_nats < scale.nats
    for seed in range(20, 40):
        assert answers(made(), elsewhere(0.05, seed), scale) == {Equivalence.EQUIVALENT}


def test_a_distance_far_beyond_the_scale_is_different() -> None:
    scale = checks_scale.between_machines(made(), elsewhere(0.05))
    assert Equivalence.DIFFERENT in answers(made(), elsewhere(0.3), scale)


def test_beyond_the_scale_and_within_the_rounding_is_undecided() -> None:
    scale = checks_scale.between_machines(made(), elsewhere(0.05))
    rounding = {text.name: 0.3 for text in made().texts}
    assert {each.answer for each in compare(made(), elsewhere(0.3), rounding, scale)} == {
        Equivalence.UNKNOWN
    }


def test_the_scale_is_of_other_machines_alone() -> None:
    scale = HarmlessNats(nats=1.0, closest_nats=1.0)
    here = replace(elsewhere(0.05), machine=made().machine)
    assert Equivalence.DIFFERENT in answers(made(), here, scale)
    other_build = replace(elsewhere(0.05), build="0.30.0")
    assert answers(made(), other_build, scale) == {Equivalence.UNKNOWN}


def test_equal_machines_have_the_least_scale_there_is() -> None:
    scale = checks_scale.between_machines(made(), replace(made(), machine="another"))
    assert (scale.nats, scale.closest_nats) == pytest.approx((1e-4, 1e-4))


def test_short_answers_are_left_out() -> None:
    def cut(text: ForcedText) -> ForcedText:
        return replace(text, answer=text.answer[:2], answer_logprobs=(-9.0, -9.0))

    now = elsewhere(0.05)
    short = replace(now, texts=tuple(map(cut, now.texts)))
    assert checks_scale.between_machines(made(), short).nats < 0.1


def test_the_printed_scale_is_valid_in_a_lane() -> None:
    scale = HarmlessNats(nats=0.01234, closest_nats=0.00456)
    table = tomllib.loads(checks_scale.as_toml("llama/4", scale))["numerics"]
    assert NumericScales(**table).other_machine == {"llama/4": scale}
