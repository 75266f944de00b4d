"""The starter forks and ends workers, whenever the garbage collector runs."""

from __future__ import annotations

import gc
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.prompts.limits import RenderLimits
from pytest_vllm_gates.prompts.worker import RenderWorker

if TYPE_CHECKING:
    import pytest

ENDS_WITHIN_S = 30.0


def worker() -> RenderWorker:
    return RenderWorker("x", miniatures.path("qwen3.5"), None, RenderLimits.from_environment())


def in_a_cycle() -> int:
    """Make a worker that only the garbage collector can end; return its process id."""
    held: dict[str, object] = {"worker": (made := worker())}
    held["itself"] = held
    return made._forked[-1].pid


def test_collecting_a_worker_while_another_is_forked_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector runs where it likes, also while an order to the starter is under way."""
    gc.disable()
    try:
        left = in_a_cycle()
        pair = socket.socketpair

        def collecting() -> tuple[socket.socket, socket.socket]:
            gc.collect()
            return pair()

        monkeypatch.setattr(socket, "socketpair", collecting)
        made: list[RenderWorker] = []
        forking = threading.Thread(target=lambda: made.append(worker()), daemon=True)
        forking.start()
        forking.join(ENDS_WITHIN_S)
        assert made, f"no worker after {ENDS_WITHIN_S:.0f} s"
        made[0].close()
        worker().close()
    finally:
        gc.enable()
    deadline = time.monotonic() + ENDS_WITHIN_S
    while Path(f"/proc/{left}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{left}").exists(), "the worker that nobody closed goes on"
