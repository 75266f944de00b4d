"""While one server is measured, the other is paused; it always resumes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.plans import Block, planned_throughput
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.process.process import paused
from pytest_vllm_gates.throughput.blocks import BlockDriver, MeasuredServer

if TYPE_CHECKING:
    from collections.abc import Iterator

STOPPED = "T"


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two processes that do nothing."""
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
               for _ in range(2)]  # fmt: skip
    yield [process.pid for process in started]
    for process in started:
        process.kill()
        process.wait()


def is_stopped(pid: int, *, expected: bool) -> bool:
    """Return whether a process is stopped, once the signal has taken effect."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if (state == STOPPED) == expected:
            break
        time.sleep(0.005)
    return state == STOPPED


def test_other_server_is_paused_while_one_is_measured(
    pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (
        MeasuredServer(Endpoint(f"http://{pid}", ""), None, stoppable=[pid].copy) for pid in pids
    )
    states = []

    def block(_: BlockDriver, server: MeasuredServer, name: str) -> Block:
        at = [ours, theirs].index(server)
        states.append(
            (is_stopped(pids[at], expected=False), is_stopped(pids[1 - at], expected=True))
        )
        return Block(name, 0.0, 1.0, 1, 0.1, 0.1)

    monkeypatch.setattr(BlockDriver, "block", block)
    groups = [*BlockDriver(planned_throughput(), (), 1.0).groups(ours, theirs, "seed", 2)]
    assert len(groups) == 2
    assert states == [(False, True)] * 8
    assert not any(is_stopped(pid, expected=False) for pid in pids)


def test_processes_resume_after_a_failure(pids: list[int]) -> None:
    def fails() -> None:
        with paused(lambda: pids):
            assert all(is_stopped(pid, expected=True) for pid in pids)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert not any(is_stopped(pid, expected=False) for pid in pids)


def test_finished_process_is_not_paused(pids: list[int]) -> None:
    with paused(lambda: [2**22 - 1, pids[0]]):
        assert is_stopped(pids[0], expected=True)
    assert not is_stopped(pids[0], expected=False)
