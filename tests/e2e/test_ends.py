"""No process of a run is left, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from e2e import gates

pytestmark = pytest.mark.real

KILL = Path(__file__).parents[2] / "benchmarks" / "kill.py"
BOOT_BEGUN_S = 60.0
INTO_THE_BOOT_S = 3.0


@pytest.mark.alone
def test_interrupt_while_booting_ends_every_process(tmp_path: Path) -> None:
    token = uuid.uuid4().hex
    with gates.start(tmp_path, env={gates.TOKEN: token}) as process:
        log = tmp_path / "report" / "qwen3.5" / "server.log"
        deadline = time.monotonic() + BOOT_BEGUN_S
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(INTO_THE_BOOT_S)
        assert len(gates.marked(token)) > 1, "nothing is being booted"
        interrupted = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert time.monotonic() - interrupted < gates.GONE_WITHIN_S
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "the run was interrupted" in output
    assert gates.marked(token) == []


def test_kill_at_random_moments_leaves_no_process() -> None:
    killed = subprocess.run(
        [sys.executable, KILL, "--times", "3", "--seed", "1", "--longest", "20"],
        env=gates.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert "3 of 3 left nothing" in killed.stdout
