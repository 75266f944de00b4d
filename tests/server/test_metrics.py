"""A server's load, and the counters that show progress."""

from __future__ import annotations

from dataclasses import replace

import httpx2 as httpx
import pytest
from servers import running
from servers.scripted import ScriptedServer, Text

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.load.types import LoadResult, Phase
from pytest_vllm_gates.server.metrics import Load, Metrics
from pytest_vllm_gates.server.watchdog import RestState

LOAD = Load(1.0, running=2, waiting=3, generated=40, read=50, preempted=6, kv_usage=0.123456)


def test_in_flight_is_running_plus_waiting() -> None:
    assert LOAD.in_flight == 5


@pytest.mark.parametrize(
    "changed",
    [{"running": 1}, {"waiting": 0}, {"generated": 41}, {"read": 51}, {"kv_usage": 0.5}],
)
def test_any_request_counter_is_progress(changed: dict[str, float]) -> None:
    assert replace(LOAD, **changed).progress != LOAD.progress  # type: ignore[arg-type]


def test_time_alone_is_not_progress() -> None:
    assert replace(LOAD, at=2.0, preempted=7, cached=8).progress == LOAD.progress


def test_load_reports_the_maximum_of_each_phase() -> None:
    at_rest = replace(LOAD, preempted=4, cached=100)
    phase = Phase(
        "chats", alone=True, users=4, asked={}, answers=(), took_s=1.239, late_s=(),
        before=at_rest, after=replace(at_rest, preempted=6, cached=130),
        seen=(LOAD, replace(LOAD, running=9, kv_usage=0.1)),
    )  # fmt: skip
    quiet = replace(phase, name="quiet", seen=(), before=None)
    rest_state = RestState(Completion(), in_flight=0, kv_usage=0.0, memory_bytes=None)
    assert LoadResult(Completion(), (phase, quiet), (), rest_state).as_evidence() == {
        "chats": {
            "took_s": 1.24, "requests": 0, "running": 9, "waiting": 3, "kv_usage": 0.1235,
            "preempted": 2, "cached_tokens": 30,
        },
        "quiet": {
            "took_s": 1.24, "requests": 0, "running": None, "waiting": None, "kv_usage": None,
            "preempted": None, "cached_tokens": None,
        },
    }  # fmt: skip
    assert LOAD.as_evidence()["generated"] == 40


@pytest.mark.parametrize("value", ["NaN", "+Inf", "many", "1e999", ""])
def test_invalid_counter_is_an_error_of_the_server(value: str) -> None:
    text = f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 0.0\n"
    with (
        running(ScriptedServer(lambda *_: (200, Text(text)))) as server,
        Metrics(server.endpoint) as metrics,
        pytest.raises(httpx.HTTPError, match=r"^/metrics is not as in the API: "),
    ):
        metrics.load()
