"""A real server that goes wrong under load: each fault turns the load gate red by its check."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from e2e import gates
from sweeps import named, sweep

from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.served import Served

pytestmark = [pytest.mark.real, pytest.mark.alone]

LANE = """\
title = "the server that spoils"
base_url = "{url}"
batch_invariant = true

[load]
requests = 48

[load.limits]
ttft_p95_s = 30.0
itl_p95_s = 2.0
"""


@dataclass(frozen=True)
class LoadFault:
    """How a load is spoilt, the check that detects it, and its message."""

    name: str
    check: str
    says: str
    more: tuple[str, ...] = ()


LOAD_FAULTS = [
    LoadFault("stalls", "no_stream_stops_while_others_go_on", "while others went on"),
    LoadFault("drops", "every_request_is_answered_whole", "tokens are counted and the ids of"),
    LoadFault("crosses", "no_answer_under_load_holds_what_is_anothers", "does not contain its own"),
    LoadFault(
        "halves", "planned_streams_run_at_once", "8 concurrent streams are planned, and at most 4"
    ),
    LoadFault(
        "stops",
        "nothing_hangs_under_load",
        "while /health returns 200",
        ("--stall-timeout", "15"),
    ),
    LoadFault("tires", "soak_does_not_slow_down", "tokens a second are lost", ("--soak", "60s")),
    LoadFault("dies", "every_request_is_answered_whole", "requests failed, mostly: "),
]


def run_spoilt(
    tmp_path: Path, server: Served, fault: str, *arguments: str, rate: float = 0.0
) -> gates.GatesRun:
    """Have the server spoil its answers, and run the gate on it; `rate`: the planned one."""
    endpoint = server.endpoint
    (tmp_path / "lanes").mkdir()
    lane = LANE.format(url=endpoint.base_url)
    if rate:
        lane = lane.replace("[load]\n", f"[load]\nrate = {rate}\n")
    (tmp_path / "lanes" / "spoilt.toml").write_text(lane, encoding="utf-8")
    http.post(endpoint, f"/spoil?{fault}", {}).raise_for_status()
    try:
        return gates.run(
            tmp_path, "--lane", "spoilt", "--checkpoint", "miniature", "-m", "boot or load",
            *arguments,
            env={"OPENAI_API_KEY": endpoint.api_key or ""},
        )  # fmt: skip
    finally:
        with contextlib.suppress(httpx.HTTPError):  # the request may have ended it
            http.post(endpoint, "/spoil", {})


def test_unspoilt_server_is_green(tmp_path: Path, spoiling: Callable[[], Served]) -> None:
    gates_run = run_spoilt(tmp_path, spoiling(), "")
    assert gates_run.outcomes() == {"boot": "PASS", "load": "PASS"}, gates_run.output


@pytest.mark.parametrize(
    "load_fault", sweep(LOAD_FAULTS, lambda load_fault: load_fault.name, named("halves", "crosses"))
)
def test_load_fault_fails_its_check(
    tmp_path: Path, spoiling: Callable[[], Served], load_fault: LoadFault
) -> None:
    gates_run = run_spoilt(tmp_path, spoiling(), load_fault.name, *load_fault.more)
    assert gates_run.outcomes() == {"boot": "PASS", "load": "FAIL"}, gates_run.output
    assert load_fault.says in failures(gates_run).get(f"test_{load_fault.check}", ""), failures(
        gates_run
    )


def failures(gates_run: gates.GatesRun) -> dict[str, str]:
    """Return why tests failed, by their names."""
    return {
        test["test"].partition("[")[0]: test["reason"]
        for test in judged_tests(gates_run)
        if test["outcome"] == "FAIL"
    }


def judged_tests(gates_run: gates.GatesRun) -> list[dict[str, Any]]:
    (family,) = gates_run.verdict["families"]
    return [test for gate in family["gates"] for test in gate["tests"]]


RAMP = "test_planned_rate_is_below_capacity"


@pytest.mark.slow  # each is a separate ramp, up to a minute and a half
@pytest.mark.parametrize(
    ("rate", "expected"),
    [pytest.param(1.0, "PASS", id="far below"), pytest.param(80.0, "FAIL", id="far above")],
)
def test_planned_rate_is_compared_with_the_capacity(
    tmp_path: Path, spoiling: Callable[[], Served], rate: float, expected: str
) -> None:
    gates_run = run_spoilt(tmp_path, spoiling(), "", "--ramp", rate=rate)
    tests = {test["test"].partition("[")[0]: test for test in judged_tests(gates_run)}
    assert tests[RAMP]["outcome"] == expected, tests[RAMP]
    assert tests[RAMP]["evidence"]["ramp"]["steps"]
    if expected == "FAIL":
        assert "80 requests a second are planned" in failures(gates_run)[RAMP]
        assert [*failures(gates_run)] == [RAMP], (
            "a load that is too much loses and mixes up nothing"
        )


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2026-01-05 10:00:{n // 2:02d}.{500 * (n % 2):03d}0000,{40 + 9 * n},{6 + n}\n"
    for n in range(20)
)


@pytest.mark.slow  # the same as with composed arrivals, which CI runs
@pytest.mark.parametrize(("load_fault", "expected"), [("", "PASS"), ("drops", "FAIL")])
def test_replayed_trace_is_judged_like_other_loads(
    tmp_path: Path, spoiling: Callable[[], Served], load_fault: str, expected: str
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE, encoding="utf-8")
    gates_run = run_spoilt(tmp_path, spoiling(), load_fault, "--load-trace", "trace.csv")
    assert gates_run.outcomes() == {"boot": "PASS", "load": expected}, gates_run.output
    (arrival_test,) = [
        test for test in judged_tests(gates_run) if "go_out_as_asked" in test["test"]
    ]
    assert arrival_test["outcome"] == "PASS", arrival_test
    assert "trace" in arrival_test["evidence"]["arrivals"]
    if load_fault:
        assert "test_every_request_is_answered_whole" in failures(gates_run)
