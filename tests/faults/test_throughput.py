"""A real server that becomes slower, and a lane that is: the throughput gate finds both."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e import gates, own_lane

from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.served import Served

pytestmark = [pytest.mark.real, pytest.mark.alone]

SLOWER = Path(__file__).parent / "slower"
SHARE = 0.25
LANE = """\
title = "the server that spoils"
base_url = "{url}"

[throughput]
concurrency = 8
requests = 8
prompt_tokens = 128
output_tokens = 32

[throughput.baseline]
blocks = 12
margin = 0.5
alarm_above = 0.3
rounds = 2
pause_s = 1.0

[throughput.baseline.boot_sd]
output_tokens_per_s = 0.08
ttft_s = 0.08
itl_s = 0.08
"""
BUSY_S = 300.0
"""The longest time that other work runs if it is not ended."""
FEW = {
    "groups": 12,
    "pairs": [1, 2],
    "margin": 0.15,
    "pair_sd": {"output_tokens_per_s": 0.03, "ttft_s": 0.08, "itl_s": 0.03},
}


def run_spoilt(folder: Path, server: Served, fault: str, *arguments: str) -> gates.GatesRun:
    """Have the server spoil its answers, and run the gate on it."""
    http.post(server.endpoint, f"/spoil?{fault}", {}).raise_for_status()
    try:
        return gates.run(
            folder, "--lane", "spoilt", "--checkpoint", "miniature", "-m", "throughput", *arguments,
            env={"OPENAI_API_KEY": server.endpoint.api_key or ""},
        )  # fmt: skip
    finally:
        http.post(server.endpoint, "/spoil", {})


@pytest.mark.slow
def test_server_three_times_slower_than_recorded_fails(
    tmp_path: Path, spoiling: Callable[[], Served]
) -> None:
    server = spoiling()
    (tmp_path / "lanes").mkdir()
    lane = LANE.format(url=server.endpoint.base_url)
    (tmp_path / "lanes" / "spoilt.toml").write_text(lane, encoding="utf-8")

    first_run = run_spoilt(tmp_path, server, "")
    assert first_run.outcomes() == {"throughput": "MISSING"}, first_run.output
    assert first_run.status == 0
    for number in range(1, 3):
        recording = run_spoilt(tmp_path, server, "", "--update-baseline")
        assert recording.outcomes() == {"throughput": "PASS"}, recording.output
        assert f"{number:04d}_qwen3.5-miniature-spoilt.json" in recording.output
    clean = run_spoilt(tmp_path, server, "")
    assert clean.outcomes() == {"throughput": "PASS"}, clean.output

    slow = run_spoilt(tmp_path, server, "slows")
    assert slow.outcomes() == {"throughput": "FAIL"}, slow.output
    assert "REGRESSION: -" in slow.reasons("throughput")
    assert "against 2 boots recorded with" in slow.reasons("throughput")


@pytest.mark.slow
def test_lane_slower_than_another_is_a_regression(tmp_path: Path) -> None:
    own_lane.write(tmp_path, "quick", throughput={"against": FEW})
    slow = {"PYTHONPATH": str(SLOWER), "VLLM_GATES_TEST_SLOWER": str(SHARE)}
    own_lane.write(tmp_path, "slow", env=slow, throughput={"against": FEW})
    gates_run = gates.run(tmp_path, "--lane", "slow", "--against", "quick", "-m", "throughput")
    assert gates_run.outcomes() == {"throughput": "FAIL"}, gates_run.output
    assert gates_run.status == 1
    assert "slow against quick: REGRESSION: -" in gates_run.reasons("throughput")
    assert (tmp_path / "report" / "against" / f"{gates.MODEL}.json").is_file()


@contextlib.contextmanager
def other_work() -> Iterator[None]:
    """Keep every processor busy with other work."""
    code = f"import time\nend = time.monotonic() + {BUSY_S}\nwhile time.monotonic() < end: pass"
    argv = [sys.executable, "-c", code]
    running = [subprocess.Popen(argv) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_busy_machine_is_not_reported_as_slower(tmp_path: Path) -> None:
    deviations = dict.fromkeys(("output_tokens_per_s", "ttft_s", "itl_s"), 0.08)
    few = {"baseline": {"blocks": 12, "margin": 0.3, "boot_sd": deviations}}
    own_lane.write(tmp_path, "quiet", throughput=few)
    arguments = ("--lane", "quiet", "-m", "throughput")
    recording = gates.run(tmp_path, *arguments, "--update-baseline")
    assert recording.outcomes() == {"throughput": "PASS"}, recording.output
    with other_work():
        gates_run = gates.run(tmp_path, *arguments)
    assert gates_run.outcomes() == {"throughput": "INCONCLUSIVE"}, gates_run.output
    assert "other processes used the processors" in gates_run.reasons("throughput")
