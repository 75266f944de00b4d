"""Processor time is divided between the server, the host and others."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.machine import cpu
from pytest_vllm_gates.machine.cpu import FIELDS, CpuShares, Times, look, spent

if TYPE_CHECKING:
    from pathlib import Path


def times(server_s: float | None, own_s: float, **machine: float) -> Times:
    return Times({name: machine.get(name, 0.0) for name in FIELDS}, server_s, own_s)


START = times(0.0, 0.0)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        pytest.param(
            times(6.0, 1.0, user=6.0, system=1.0, idle=3.0), CpuShares(0.0, 0.0, 6.0), id="alone"
        ),
        pytest.param(
            times(4.0, 1.0, user=8.0, system=2.0), CpuShares(0.0, 0.5, 4.0), id="half is others'"
        ),
        pytest.param(
            times(4.0, 1.0, user=7.5, idle=2.5), CpuShares(0.0, 0.0, 4.0),
            id="as much was left over"
        ),
        pytest.param(
            times(4.0, 1.0, user=7.0, idle=1.0, iowait=0.5, softirq=1.0, irq=0.5),
            CpuShares(0.0, 0.2, 4.0), id="interrupts count",
        ),
        pytest.param(
            times(4.0, 1.0, user=5.0, nice=5.0), CpuShares(0.0, 0.5, 4.0),
            id="who is nice takes it too"
        ),
        pytest.param(
            times(4.0, 1.0, user=5.0, steal=5.0), CpuShares(0.5, 0.0, 4.0), id="the host took half"
        ),
        pytest.param(
            times(9.0, 1.0, nice=10.0), CpuShares(0.0, 0.0, 9.0), id="the server itself is nice"
        ),
        pytest.param(
            times(None, 1.0, user=10.0), CpuShares(0.0, None, None), id="whose server is not known"
        ),
        pytest.param(START, CpuShares(0.0, None, 0.0), id="no time passed"),
    ],
)  # fmt: skip
def test_share_of_others_is_the_time_that_the_server_missed(now: Times, due: CpuShares) -> None:
    shares = spent(START, now)
    assert (shares.steal, shares.server_s) == (due.steal, due.server_s)
    assert shares.others == pytest.approx(due.others)


def test_only_the_processors_of_this_process_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(
        "cpu  999 0 0 0 0 0 0 0 0 0\n"
        "cpu0 100 0 0 300 0 0 0 0 0 0\n"
        "cpu1 900 0 0 0 0 0 0 0 0 0\n"
        "cpu2 50 10 0 0 0 0 0 20 0 0\n"
        "intr 5\n"
    )
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(f"7 (a ) name) S {' '.join(['0'] * 10)} 120 30 0 0\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2})
    monkeypatch.setattr(cpu, "TICKS", 100)
    measured = look([7, 8], tmp_path)
    assert measured.machine == dict.fromkeys(FIELDS, 0.0) | {
        "user": 1.5, "nice": 0.1, "idle": 3.0, "steal": 0.2,
    }  # fmt: skip
    assert measured.server_s == 1.5
    assert look([], tmp_path).server_s is None


def test_system_without_proc_files_has_no_figures(tmp_path: Path) -> None:
    measured = look([7], tmp_path)
    assert measured.machine == {}
    assert spent(measured, measured) == CpuShares(0.0, None, 0.0)


def test_busy_processes_of_others_are_measured() -> None:
    """Real work on every processor of this machine, of processes that are nobody's server."""
    count = 2 * len(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen(  # ends by itself
            [sys.executable, "-c",
             "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"]
        )
        for _ in range(count)
    ]  # fmt: skip
    try:
        before = look([busy[0].pid])
        with pytest.raises(subprocess.TimeoutExpired):
            busy[1].wait(1.0)
        shares = spent(before, look([busy[0].pid]))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert shares.server_s
    assert shares.others is not None
    assert shares.others > 0.2
