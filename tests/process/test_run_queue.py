"""A process that waits for a processor is distinguished from one that waits for itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.process import run_queue
from pytest_vllm_gates.process.run_queue import RunQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPIN, SLEEP = "exec('while True: pass')", "__import__('time').sleep(60)"
LOOKED_S = 0.6


@contextlib.contextmanager
def processes(program: str, count: int) -> Iterator[list[int]]:
    """Several processes of a program, all on one processor."""
    core = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, {{{core}}}); print('up', flush=True); {program}"
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout
            assert process.stdout.readline() == b"up\n"
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def waited(pids: list[int]) -> float | None:
    queue = RunQueue(lambda: pids)
    time.sleep(LOOKED_S)
    return queue.waited()


def test_one_of_six_on_a_processor_waits_most_of_the_time() -> None:
    with processes(SPIN, 6) as pids:
        share = waited(pids[:1])
    assert share is not None
    assert share > 0.6


def test_sleeping_process_does_not_wait_for_a_processor() -> None:
    with processes(SLEEP, 1) as pids:
        assert waited(pids) is None


def test_only_times_since_the_restart_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "PROCESSES", tmp_path)
    folder = tmp_path / "1" / "task" / "1"
    folder.mkdir(parents=True)
    file = folder / "schedstat"
    file.write_text("0 0 0\n", encoding="ascii")
    queue = RunQueue(lambda: [1])
    file.write_text("9000000000 0 5\n", encoding="ascii")
    assert queue.waited() == 0
    queue.restart()
    file.write_text("10000000000 3000000000 9\n", encoding="ascii")
    assert queue.waited() == 0.75


@pytest.mark.parametrize("content", ["", "1 2", "no numbers at all"])
def test_other_kernel_reports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(run_queue, "PROCESSES", tmp_path)
    folder = tmp_path / "1" / "task" / "1"
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text(content, encoding="ascii")
    assert RunQueue(lambda: [1, 2]).waited() is None
