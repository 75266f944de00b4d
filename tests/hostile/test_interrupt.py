"""Ctrl-C or SIGTERM ends a run within seconds wherever it comes, with what was seen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.hostile import HostileServer

if TYPE_CHECKING:
    from pathlib import Path

MOST_S = 5.0
QUEUED = 8
"""How many chats are under way when the queue of the others waits."""


def run(tmp_path: Path, server: HostileServer, gates: str) -> subprocess.Popen[bytes]:
    """Start a run against a server; its output goes to a file."""
    argv = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--model", "qwen3.5",
        "--gates-report", str(tmp_path / "report"), "-m", gates, "--base-url", server.base_url,
    ]  # fmt: skip
    output = tmp_path / "output.txt"
    with output.open("wb") as file:
        return subprocess.Popen(
            argv, cwd=tmp_path, stdout=file, stderr=file, stdin=subprocess.DEVNULL
        )


@pytest.mark.parametrize("behaviour", ["chat-silent", "chat-drip", "stream-slow-tokens"])
@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGINT, 1), (signal.SIGINT, 3), (signal.SIGTERM, 1)]
)
def test_queue_of_slow_answers_is_given_up(
    tmp_path: Path, behaviour: str, number: int, times: int
) -> None:
    """The streaming gate has hundreds of requests in its queue then: they took minutes."""
    with running(HostileServer(behaviour)) as server, run(tmp_path, server, "streaming") as process:
        begun = time.monotonic()
        while server.hostile_answers < QUEUED and time.monotonic() - begun < 60:
            assert process.poll() is None, (tmp_path / "output.txt").read_text()
            time.sleep(0.05)
        interrupted = time.monotonic()
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.3)
        process.wait(60)
        seconds = time.monotonic() - interrupted
    text = (tmp_path / "output.txt").read_text()
    assert seconds < MOST_S, text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert "verdict: HOLD" in text
    assert "the run was interrupted" in text
    verdict = json.loads((tmp_path / "report" / "verdict.json").read_text())
    assert verdict["promotion"] == "HOLD"


def test_waiting_for_a_server_is_given_up(tmp_path: Path) -> None:
    with (
        running(HostileServer("models-silent")) as server,
        run(tmp_path, server, "boot") as process,
    ):
        time.sleep(2.0)
        interrupted = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        seconds = time.monotonic() - interrupted
    assert seconds < MOST_S
    assert "Traceback" not in (tmp_path / "output.txt").read_text()
