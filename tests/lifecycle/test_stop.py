"""Streams, new requests and the process are watched after SIGTERM, for each way to stop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2 as httpx
import pytest

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.lifecycle import checks, stop
from pytest_vllm_gates.lifecycle.types import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("stopping_program.py")
BODY = {"messages": [{"role": "user", "content": "Tell me a story."}]}
Started = tuple[Endpoint, int]


@pytest.fixture
def started() -> Iterator[Callable[[str], Started]]:
    """Start a server that stops in the given way; it ends with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(way: str) -> Started:
        process = subprocess.Popen(
            [sys.executable, "-I", PROGRAM, way], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout
        port = int(process.stdout.readline())
        return Endpoint(f"http://127.0.0.1:{port}/v1", "m"), process.pid

    yield start
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


@pytest.mark.parametrize(
    ("way", "end", "wrong"),
    [
        ("drains", StreamEnd.WHOLE, ""),
        ("errors", StreamEnd.ERROR, ""),
        ("cuts", StreamEnd.CUT, "as if it were whole"),
        ("hangs", StreamEnd.HANGS, "its connection stays open"),
    ],
)
def test_each_way_to_stop_is_distinguished(
    started: Callable[[str], Started],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    end: StreamEnd,
    wrong: str,
) -> None:
    monkeypatch.setattr(stop, "GRACE_S", 3.0)
    stopped = stop.stop(*_with_body(started(way)))
    assert [each.end for each in stopped.streams] == [end] * stop.STREAMS
    findings, cases = checks.streams(stopped)
    assert len(cases) == stop.STREAMS
    assert bool(findings) is bool(wrong)
    assert all(wrong in finding.says for finding in findings)
    assert (stopped.gone_s is None) is (way == "hangs")
    lingering, _ = checks.lingering(stopped)
    assert bool(lingering) is (way == "hangs")
    assert checks.readiness(stopped)[0] == []


def test_a_health_check_that_lies_is_reported(
    started: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "GRACE_S", 3.0)
    stopped = stop.stop(*_with_body(started("lies")))
    ((finding,), _) = checks.readiness(stopped)
    assert "/health returns 200 after a request was answered 503" in finding.says


def test_streams_that_do_not_begin_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "BEGIN_S", 0.5)
    with pytest.raises(httpx.HTTPError):
        stop.stop(Endpoint("http://127.0.0.1:9/v1", "m"), BODY, 0)


def _with_body(started: Started) -> tuple[Endpoint, dict[str, object], int]:
    return started[0], {**BODY}, started[1]
