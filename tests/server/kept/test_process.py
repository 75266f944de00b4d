"""Signals reach only the very process that was recorded, and only one of this user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from survivors import alive, none_of, until

from pytest_vllm_gates.process.process import started
from pytest_vllm_gates.server.kept import private
from pytest_vllm_gates.server.kept.listener import listens
from pytest_vllm_gates.server.kept.process import lives, read_ending, send
from pytest_vllm_gates.server.kept.record import ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEPS = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    with subprocess.Popen(SLEEPS) as process:
        yield ProcessId(pid=process.pid, started=started(process.pid) or 0)
        process.kill()


def test_signal_reaches_the_recorded_process(sleeper: ProcessId) -> None:
    assert lives(sleeper)
    send(sleeper, signal.SIGKILL)
    until(lambda: none_of([sleeper.pid]))
    assert not lives(sleeper)


def test_reused_id_gets_no_signal(sleeper: ProcessId) -> None:
    reused = sleeper.model_copy(update={"started": sleeper.started + 1})
    assert not lives(reused)
    send(reused, signal.SIGKILL)
    assert alive(sleeper.pid)


def test_process_of_another_user_gets_no_signal(
    sleeper: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert not lives(sleeper)
    send(sleeper, signal.SIGKILL)
    assert alive(sleeper.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_root_ends_no_process_of_another_user() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], user=65534) as process:
        other = ProcessId(pid=process.pid, started=started(process.pid) or 0)
        until(lambda: not lives(other))
        send(other, signal.SIGKILL)
        assert alive(other.pid)
        process.kill()


@pytest.mark.parametrize("has_pidfd", [True, False])
@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**22])
def test_invalid_process_id_gets_no_signal(
    monkeypatch: pytest.MonkeyPatch, pid: int, *, has_pidfd: bool
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a signal was sent")

    if not has_pidfd:
        monkeypatch.setattr(os, "pidfd_open", lambda _: (_ for _ in ()).throw(OSError("ENOSYS")))
    monkeypatch.setattr(os, "kill", refused)
    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    send(ProcessId.model_construct(pid=pid, started=0), signal.SIGKILL)


def test_signal_is_sent_without_pidfd(sleeper: ProcessId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pidfd_open", lambda _: (_ for _ in ()).throw(OSError("ENOSYS")))
    send(sleeper, signal.SIGKILL)
    until(lambda: none_of([sleeper.pid]))


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "[" * 100_000, '{"status": 1e999, "at": 1}', '{"status": 0, "at": NaN}',
        '{"status": 0, "at": Infinity}', '{"status": "x", "at": 1}', "x" * 5000,
        '{"status": ' + "9" * 5000 + ', "at": 1}',
    ],
)  # fmt: skip
def test_invalid_ending_is_none(tmp_path: Path, text: str) -> None:
    private.write(tmp_path / "ended.json", text)
    assert read_ending(tmp_path) is None


def test_ending_is_read(tmp_path: Path) -> None:
    private.write(tmp_path / "ended.json", '{"status": 9, "at": 5.5}')
    assert read_ending(tmp_path) == (9, 5.5)


def test_process_that_listens_is_found(sleeper: ProcessId) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(port, [sleeper.pid, os.getpid()])
        assert not listens(port, [sleeper.pid, 2**22])
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert not listens(client.getsockname()[1], [os.getpid()]), "it only connects"
    assert not listens(port, [os.getpid()])
