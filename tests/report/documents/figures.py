"""Figures as the gates record them: made by the package's own records, for any document."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from load.test_checks import IDLE, LIMITS, PARIS, TOKENS, answer, phase

from pytest_vllm_gates.load import latency, ramp
from pytest_vllm_gates.load.types import Limit, LoadResult, RampStep
from pytest_vllm_gates.long_context.types import PromptReply, Rung, RungResult
from pytest_vllm_gates.numerics.checks import Distance
from pytest_vllm_gates.server.watchdog import RestState

PHASES = ("streams", "arrivals")
TIMES = {"health_s": 38.5, "first_chat_s": 39.0, "first_token_s": 0.25}
PHASES_S = {"weights": 12.5, "engine": 20.0, "compiling": 14.0, "graphs": 5.0}


def of_load(each: float = 0.02) -> dict[str, dict[str, Any]]:
    """Return the evidence of the load gate's tests; a token takes `each` seconds."""
    phases = []
    for name in PHASES:
        answers = tuple(answer(number, 0.01 * number, each + 0.001 * number) for number in range(8))
        seen = tuple(
            replace(IDLE, at=100 + look / 10, running=min(4, look), waiting=look % 5, kv_usage=0.25)
            for look in range(30)
        )
        after = replace(IDLE, preempted=3, cached=64, generated=100 + 8 * TOKENS)
        phases.append(phase(*answers, name=name, seen=seen, after=after))
    result = LoadResult(PARIS, tuple(phases), (), None)
    steps = (
        RampStep(4.0, phases[0], None),
        RampStep(8.0, phases[1], Limit("p95 TTFT is 9 s", clients=False)),
    )
    return {
        "test_latencies_are_within_their_limits": {
            "figures": {each.name: latency.figures(each, LIMITS) for each in phases},
            "server": result.as_evidence(),
        },
        "test_planned_streams_run_at_once": {"looks": result.looks()},
        "test_planned_rate_is_below_capacity": {"ramp": ramp.as_evidence(steps)},
    }


def of_ladder(seconds: float = 1.5) -> dict[str, dict[str, Any]]:
    """Return the evidence of long_context's ladder."""
    rest = RestState(PARIS, 0, 0.0, 2**30)
    rungs = [
        RungResult(Rung(512, 8), (PromptReply(seconds=seconds / 4),), rest),
        RungResult(Rung(512, 8, prefix="warm"), (PromptReply(seconds=seconds / 8),), rest),
        RungResult(Rung(4088, 8, 4), (PromptReply(seconds=seconds),), rest, waited=2, preempted=1),
        RungResult(Rung(4088, 8, 4), (PromptReply(error="answered 500"),), None),
    ]
    return {"test_every_length_is_answered": {"rungs": [rung.as_evidence() for rung in rungs]}}


def of_numerics(mean: float = 0.01) -> dict[str, dict[str, Any]]:
    """Return the evidence of numerics."""
    distances = {
        "code": asdict(Distance(40, mean, 3 * mean, 6 * mean, 7)),
        "prose": asdict(Distance(60, mean / 2, mean, 2 * mean, 3)),
    }
    allowed = {"mean": 0.02, "nearly_all": 0.1, "worst": 0.5}
    evidence = {"tolerance_nats": allowed, "distance_nats": distances}
    return {
        "test_prompt_is_scored_as_by_the_reference": evidence,
        "test_output_is_scored_as_by_the_reference": evidence | {"prefix": "warm"},
    }


def with_figures(
    document: dict[str, Any], *, each: float = 0.02, seconds: float = 1.5, mean: float = 0.01
) -> dict[str, Any]:
    """Return the document with figures in the first family, whose tests all passed."""
    family: dict[str, Any] = document["families"][0]
    family["boot"] = {
        "ok": True, "failure": None, "explanation": None, "times": TIMES, "evidence": {},
    }  # fmt: skip
    boot = {"test_boots": {"phases_s": PHASES_S}}
    found = {
        "boot": boot, "load": of_load(each), "long_context": of_ladder(seconds),
        "numerics": of_numerics(mean),
    }  # fmt: skip
    for name, tests in found.items():
        gate: dict[str, Any] = {
            "gate": name, "title": name, "outcome": "PASS", "reason": "", "duration_s": 3.0,
            "tests": [
                {
                    "test": f"{test}[{family['name']}]", "outcome": "PASS", "reason": "",
                    "duration_s": 1.0, "evidence": evidence,
                }
                for test, evidence in tests.items()
            ],
        }  # fmt: skip
        gates = family["gates"]
        places = [at for at, existing in enumerate(gates) if existing["gate"] == name]
        if not places:
            gates.append(gate)
            continue
        listed = {test["test"].partition("[")[0]: test for test in gate["tests"]}
        kept = [
            test for test in gates[places[0]]["tests"]
            if test["test"].partition("[")[0] not in listed
        ]  # fmt: skip
        gates[places[0]] = {**gates[places[0]], "tests": [*gate["tests"], *kept]}
    return document
