"""Whatever a server sends, a run ends with a verdict: in time, within its memory, uncrashed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.hostile import BEHAVIOURS, HostileServer
from sweeps import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GATES = "boot or contracts or dialects or isolation or reasoning or startup"
MOST_S = 60.0
"""Of a run on a busy machine; no wait of it may last 30 s."""
MOST_BYTES = 600 * 10**6
PATIENT = {"chat-silent", "chat-drip"}
"""A slow model answers late, too: each of these waits minutes, or `Bounds.body_s`, by design."""
ALWAYS = {
    "chat-call-id", "chat-deep", "chat-endless", "metrics-endless", "models-bomb",
    "messages-stream-index", "openapi-deep", "stream-choice-indices", "stream-endless",
    "version-escapes",
}  # fmt: skip
"""One of each kind; the others are `slow`."""
PROGRAM = Path(__file__).with_name("forked_runs.py")

Run = dict[str, Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Path, list[str]], Run]]:
    """Run pytest with some arguments in a folder; return its status, seconds and bytes."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        wanted, answers = program.stdin, program.stdout
        assert wanted
        assert answers

        def run(folder: Path, argv: list[str]) -> Run:
            print(json.dumps({"argv": argv, "folder": str(folder)}), file=wanted, flush=True)
            answer: Run = json.loads(answers.readline())
            return answer

        yield run
        wanted.close()


@pytest.mark.parametrize(
    "name", sweep(sorted(set(BEHAVIOURS) - PATIENT), str, lambda name: name in ALWAYS)
)
def test_run_against_a_hostile_server_ends_with_a_verdict(
    name: str, tmp_path: Path, run: Callable[[Path, list[str]], Run]
) -> None:
    report = tmp_path / "report"
    argv = [
        "-p", "no:cacheprovider", "--model", "qwen3.5", "--gates-report", str(report), "-m", GATES,
        "--stall-timeout", "5",
    ]  # fmt: skip
    with running(HostileServer(name)) as server:
        ended = run(tmp_path, [*argv, "--base-url", server.base_url])
    text = (tmp_path / "output.txt").read_text(errors="replace")
    assert ended["status"] in {0, 1}, text[-4000:]
    assert "INTERNALERROR" not in text
    assert "Traceback (most recent call last)" not in text, text[-6000:]
    assert "\x1b" not in text
    verdict = json.loads((report / "verdict.json").read_text())
    assert verdict["promotion"] in {"REJECT", "HOLD"}
    assert ended["seconds"] < MOST_S
    assert ended["bytes"] < MOST_BYTES
