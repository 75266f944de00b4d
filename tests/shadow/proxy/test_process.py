"""The proxy outlives the process that judges, and a killed proxy leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from servers import running

from shadow.shadow_servers import WAIT_S, Chats, chat, shadow

ENDED = "the process that sends copies to the canary and judges them has ended"


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_ended(pid: int) -> bool:
    """Wait until a process is gone."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_clients_are_answered_though_the_judging_process_has_ended(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with (
        running(Chats()) as stable,
        running(Chats()) as canary,
        printed.open("w") as errors,
        shadow(stable.url, canary.url, tmp_path, errors=errors) as process,
    ):
        right = chat(stable.server_port)
        assert chat(process.port) == right
        (mirror,) = children(process.process.pid)
        os.kill(mirror, signal.SIGKILL)
        end = time.monotonic() + WAIT_S
        while ENDED not in printed.read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        assert [chat(process.port) for _ in range(5)] == [right] * 5
        assert process.end() == 2
        assert f"{ENDED}, so no pair counts" in printed.read_text()


def test_nothing_stays_of_a_proxy_that_is_killed(tmp_path: Path) -> None:
    with (
        running(Chats()) as stable,
        running(Chats()) as canary,
        shadow(stable.url, canary.url, tmp_path) as process,
    ):
        chat(process.port)
        process.until_pairs(1)
        (mirror,) = children(process.process.pid)
        (judge,) = children(mirror)
        # Niceness adds up from process to process: at 19 a judge starves on a busy machine.
        own = os.getpriority(os.PRIO_PROCESS, 0)
        nice = [os.getpriority(os.PRIO_PROCESS, pid) for pid in (mirror, judge)]
        assert nice == [min(19, own + 5), max(10, min(19, own + 5))]
        process.process.kill()
        assert has_ended(mirror)
        assert has_ended(judge)


@pytest.mark.parametrize("option", ["--listen", "--control"])
def test_a_port_that_is_taken_is_an_error_that_names_it(option: str, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with socket.socket() as held, printed.open("w") as errors:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with (
            pytest.raises(AssertionError),
            shadow(
                "http://127.0.0.1:9", "http://127.0.0.1:9", tmp_path, option, str(port),
                errors=errors,
            ),
        ):  # fmt: skip
            pass
    assert f"cannot listen on 127.0.0.1:{port}" in printed.read_text()
