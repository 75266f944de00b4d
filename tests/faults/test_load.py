"""A real server that goes wrong under load alone: each way turns the load gate red by its check."""

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
requests = 24

[load.limits]
ttft_p95_s = 30.0
itl_p95_s = 2.0
"""


@dataclass(frozen=True)
class Way:
    """How a load is spoilt, the check that is to see it, and what it says."""

    name: str
    check: str
    says: str
    more: tuple[str, ...] = ()


WAYS = [
    Way("stalls", "no_stream_stops_while_others_go_on", "while others went on"),
    Way("drops", "every_request_is_answered_whole", "tokens are counted and the ids of"),
    Way("crosses", "no_answer_under_load_holds_what_is_anothers", "does not hold its own"),
    Way("halves", "planned_streams_run_at_once", "8 streams at once are planned, and at most 4"),
    Way(
        "stops",
        "nothing_hangs_under_load",
        "nothing has moved while /health says 200",
        ("--stall-timeout", "15"),
    ),
    Way("tires", "soak_does_not_slow_down", "tokens a second are lost", ("--soak", "60s")),
    Way("dies", "every_request_is_answered_whole", "requests failed, mostly: "),
]


def judged(tmp_path: Path, server: Served, way: str, *more: str, rate: float = 0.0) -> gates.Ran:
    """Let the server spoil what it is told to, and run the gate on it; `rate`: what is planned."""
    endpoint = server.endpoint
    (tmp_path / "lanes").mkdir()
    lane = LANE.format(url=endpoint.base_url)
    if rate:
        lane = lane.replace("[load]\n", f"[load]\nrate = {rate}\n")
    (tmp_path / "lanes" / "spoilt.toml").write_text(lane, encoding="utf-8")
    http.post(endpoint, f"/spoil?{way}", {}).raise_for_status()
    try:
        return gates.run(
            tmp_path, "--lane", "spoilt", "--checkpoint", "miniature", "-m", "boot or load", *more,
            env={"OPENAI_API_KEY": endpoint.api_key or ""},
        )  # fmt: skip
    finally:
        with contextlib.suppress(httpx.HTTPError):  # it may have died of it
            http.post(endpoint, "/spoil", {})


def test_nothing_spoilt_is_green(tmp_path: Path, spoiling: Callable[[], Served]) -> None:
    ran = judged(tmp_path, spoiling(), "")
    assert ran.outcomes() == {"boot": "PASS", "load": "PASS"}, ran.output


@pytest.mark.parametrize("way", sweep(WAYS, lambda way: way.name, named("halves", "crosses")))
def test_is_seen(tmp_path: Path, spoiling: Callable[[], Served], way: Way) -> None:
    ran = judged(tmp_path, spoiling(), way.name, *way.more)
    assert ran.outcomes() == {"boot": "PASS", "load": "FAIL"}, ran.output
    assert way.says in failures(ran).get(f"test_{way.check}", ""), failures(ran)


def failures(ran: gates.Ran) -> dict[str, str]:
    """Return why tests failed, by their names."""
    return {
        test["test"].partition("[")[0]: test["reason"]
        for test in judged_tests(ran)
        if test["outcome"] == "FAIL"
    }


def judged_tests(ran: gates.Ran) -> list[dict[str, Any]]:
    (family,) = ran.verdict["families"]
    return [test for gate in family["gates"] for test in gate["tests"]]


RAMP = "test_planned_rate_is_below_capacity"


@pytest.mark.slow  # each is a ramp of its own, up to a minute and a half
@pytest.mark.parametrize(
    ("rate", "due"),
    [pytest.param(1.0, "PASS", id="far below"), pytest.param(80.0, "FAIL", id="far above")],
)
def test_a_planned_rate_is_held_against_the_capacity(
    tmp_path: Path, spoiling: Callable[[], Served], rate: float, due: str
) -> None:
    ran = judged(tmp_path, spoiling(), "", "--ramp", rate=rate)
    found = {test["test"].partition("[")[0]: test for test in judged_tests(ran)}
    assert found[RAMP]["outcome"] == due, found[RAMP]
    assert found[RAMP]["evidence"]["ramp"]["steps"]
    if due == "FAIL":
        assert "80 requests a second are planned" in failures(ran)[RAMP]
        assert [*failures(ran)] == [RAMP], "a load that is too much loses and mixes up nothing"


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2026-01-05 10:00:{n // 2:02d}.{500 * (n % 2):03d}0000,{40 + 9 * n},{6 + n}\n"
    for n in range(20)
)


@pytest.mark.slow  # the same as with arrivals that are made up, which CI asks for
@pytest.mark.parametrize(("way", "due"), [("", "PASS"), ("drops", "FAIL")])
def test_a_replayed_trace_is_judged_as_other_loads_are(
    tmp_path: Path, spoiling: Callable[[], Served], way: str, due: str
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE, encoding="utf-8")
    ran = judged(tmp_path, spoiling(), way, "--load-trace", "trace.csv")
    assert ran.outcomes() == {"boot": "PASS", "load": due}, ran.output
    (asked,) = [test for test in judged_tests(ran) if "go_out_as_asked" in test["test"]]
    assert asked["outcome"] == "PASS", asked
    assert "trace" in asked["evidence"]["arrivals"]
    if way:
        assert "test_every_request_is_answered_whole" in failures(ran)
