"""The result of a comparison ends the gate's test as it should, with the next command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from numerics.forced_runs import made, recorded
from pytest_vllm_gates.numerics.checks_paired import Comparison, Equivalence, ForcedPhase
from pytest_vllm_gates.numerics.conclusion import Trusted, conclude, incomparable
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.numerics.forced_types import ForcedRun

COMMAND = "pytest --model llama -m numerics --update-golden"
SHIPPED = Trusted("llama", "canary", ships=True, command=COMMAND)
OWN = SHIPPED._replace(ships=False)
HERE = made()
ELSEWHERE = replace(HERE, machine="A100")
OF_ANOTHER_BUILD = replace(HERE, build="0.31.0")


def found(answer: Equivalence) -> list[Comparison]:
    return [
        Comparison(ForcedPhase.ALONE, Equivalence.EQUIVALENT, 12, 1440, 0.0, 0.0, 1.0),
        Comparison(ForcedPhase.TOGETHER, answer, 12, 1440, 0.0164, 0.0, 1e-9),
    ]


@pytest.mark.parametrize("trusted", [HERE, ELSEWHERE, OF_ANOTHER_BUILD])
@pytest.mark.parametrize("source", [SHIPPED, OWN])
def test_equivalent_run_passes(trusted: ForcedRun, source: Trusted) -> None:
    conclude(trusted, HERE, found(Equivalence.EQUIVALENT), source)


@pytest.mark.parametrize("source", [SHIPPED, OWN])
def test_different_run_fails_on_every_machine(source: Trusted) -> None:
    for trusted in (recorded(), replace(recorded(), machine="another")):
        with pytest.raises(AssertionError, match=r"in company: 0\.0164 nats apart"):
            conclude(trusted, recorded("fp8"), found(Equivalence.DIFFERENT), source)


def test_shipped_run_of_another_machine_does_not_apply_if_undecided() -> None:
    with pytest.raises(NotApplicable) as error:
        conclude(ELSEWHERE, HERE, found(Equivalence.UNKNOWN), SHIPPED)
    assert str(error.value) == (
        "the trusted run that ships is from another machine (A100), and the kernels of this one "
        "(H100) round differently (in company: 0.0164 nats apart); record a trusted run here: "
        f"{COMMAND}"
    )


def test_shipped_run_of_this_machine_is_inconclusive_if_undecided() -> None:
    with pytest.raises(Inconclusive, match="compare on one machine with --against"):
        conclude(OF_ANOTHER_BUILD, HERE, found(Equivalence.UNKNOWN), SHIPPED)


def test_own_run_of_another_machine_is_inconclusive_if_undecided() -> None:
    with pytest.raises(Inconclusive, match=r"(?s)on A100 and on H100.*lanes/canary\.toml"):
        conclude(ELSEWHERE, HERE, found(Equivalence.UNKNOWN), OWN)


def test_run_of_other_weights_or_of_another_precision_cannot_be_compared() -> None:
    assert incomparable(HERE, HERE) is None
    assert incomparable(HERE, replace(HERE, weights="v")) == "the trusted run is of other weights"
    assert incomparable(HERE, replace(HERE, weights="unknown")) is None
    other = replace(HERE, declared={"kv_cache_dtype": "fp8"})
    assert incomparable(HERE, other) == (
        "the flags declare another computation (kv_cache_dtype was not given and is fp8)"
    )
