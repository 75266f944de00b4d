"""Whatever a server sends, a run ends with a verdict: in time, within its memory, uncrashed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.hostile import BEHAVIOURS, HostileServer

if TYPE_CHECKING:
    from pathlib import Path

GATES = "boot or contracts or reasoning or isolation or startup"
MOST_S = 60.0
"""Of a run on a busy machine; no wait of it may last 30 s."""
MOST_BYTES = 600 * 10**6


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_run_against_a_hostile_server_ends_with_a_verdict(name: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    argv = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--model", "qwen3.5",
        "--gates-report", str(report), "-m", GATES, "--stall-timeout", "5",
    ]  # fmt: skip
    with running(HostileServer(name)) as server:
        begun = time.monotonic()
        with (tmp_path / "output.txt").open("wb") as output:
            run = subprocess.Popen(
                [*argv, "--base-url", server.base_url],
                cwd=tmp_path, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
    text = (tmp_path / "output.txt").read_text(errors="replace")
    assert run.returncode in {0, 1}, text[-4000:]
    assert "INTERNALERROR" not in text
    assert "Traceback (most recent call last)" not in text, text[-6000:]
    assert "\x1b" not in text
    verdict = json.loads((report / "verdict.json").read_text())
    assert verdict["promotion"] in {"REJECT", "HOLD"}
    assert seconds < MOST_S
    assert usage.ru_maxrss * 1024 < MOST_BYTES
