"""While one server is measured the other stands still, and goes on whatever happens."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.plans import Block, planned_throughput
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.process.process import stilled
from pytest_vllm_gates.throughput.blocks import BlockDriver, MeasuredServer

if TYPE_CHECKING:
    from collections.abc import Iterator

STOPPED = "T"


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two processes that do nothing."""
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
               for _ in range(2)]  # fmt: skip
    yield [item.pid for item in started]
    for entry in started:
        entry.kill()
        entry.wait()


def still(pid: int, *, expected: bool) -> bool:
    """Return whether a process stands still; a signal takes its moment."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if (state == STOPPED) == expected:
            break
        time.sleep(0.005)
    return state == STOPPED


def test_the_other_server_stands_still_while_one_is_measured(
    pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (
        MeasuredServer(Endpoint(f"http://{pid}", ""), None, stoppable=[pid].copy) for pid in pids
    )
    seen = []

    def block(_: BlockDriver, server: MeasuredServer, name: str) -> Block:
        at = [ours, theirs].index(server)
        seen.append((still(pids[at], expected=False), still(pids[1 - at], expected=True)))
        return Block(name, 0.0, 1.0, 1, 0.1, 0.1)

    monkeypatch.setattr(BlockDriver, "block", block)
    groups = [*BlockDriver(planned_throughput(), (), 1.0).groups(ours, theirs, "seed", 2)]
    assert len(groups) == 2
    assert seen == [(False, True)] * 8
    assert not any(still(pid, expected=False) for pid in pids)


def test_it_goes_on_after_a_failure(pids: list[int]) -> None:
    def fails() -> None:
        with stilled(lambda: pids):
            assert all(still(pid, expected=True) for pid in pids)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert not any(still(pid, expected=False) for pid in pids)


def test_a_process_that_is_gone_is_none_to_hold(pids: list[int]) -> None:
    with stilled(lambda: [2**22 - 1, pids[0]]):
        assert still(pids[0], expected=True)
    assert not still(pids[0], expected=False)
