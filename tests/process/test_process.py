"""A guarded process ends with its whole tree, whichever process ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from survivors import alive, none_of, until, zombies

from pytest_vllm_gates.process.guard import descendants
from pytest_vllm_gates.process.process import GuardedProcess, still_running

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = """\
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""
# A child in the same group, one in its own session, and a daemon whose parent is gone.
FAMILY_TREE = """\
import os, subprocess, sys, time
sleep = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
pids = [os.getpid(), subprocess.Popen(sleep).pid,
        subprocess.Popen(sleep, start_new_session=True).pid]
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, f"{os.getpid()} ".encode())
        os.execv(sleep[0], sleep)
    os._exit(0)
os.wait()
pids.append(int(os.read(read, 64)))
print(*pids, flush=True)
"""
SLEEPS = FAMILY_TREE + "time.sleep(600)\n"

Start = Callable[..., GuardedProcess]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "process.log"


@pytest.fixture
def start(log: Path) -> Iterator[Start]:
    started: list[GuardedProcess] = []

    def start(code: str, **options: object) -> GuardedProcess:
        argv = [sys.executable, "-I", "-S", "-c", code]
        started.append(GuardedProcess(argv, env=dict(os.environ), log=log, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for process in started:
        process.stop(0)
    assert not zombies() & {process.pid for process in started}


def pids(log: Path) -> list[int]:
    """Wait for the ids a program prints."""
    until(lambda: log.read_text().endswith("\n"), "nothing was printed")
    return [int(word) for word in log.read_text().split()]


@pytest.mark.parametrize("status", [0, 3, 255])
def test_the_exit_status_is_the_commands(start: Start, status: int) -> None:
    assert start(f"raise SystemExit({status})").wait(10) == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_exit_by_signal_is_128_plus_its_number(start: Start, number: int) -> None:
    assert start(f"import os; os.kill(os.getpid(), {int(number)})").wait(10) == 128 + number


@pytest.mark.parametrize("program_kind", ["nothing there", "not executable", "a folder"])
def test_command_that_cannot_start_exits_127(tmp_path: Path, log: Path, program_kind: str) -> None:
    program = tmp_path / "program"
    if program_kind == "not executable":
        program.write_text("text")
    if program_kind == "a folder":
        program.mkdir()
    process = GuardedProcess([str(program)], env={}, log=log)
    assert process.wait(10) == 127
    assert f"cannot start {program}: " in log.read_text()
    assert process.stop() == 127


def test_output_and_errors_are_appended_to_the_log(start: Start, log: Path) -> None:
    log.parent.mkdir()
    log.write_text("before\n")
    start("import sys; print('out', flush=True); print('err', file=sys.stderr)").wait(10)
    assert log.read_text() == "before\nout\nerr\n"


def test_a_process_that_runs_has_no_status_yet(start: Start) -> None:
    process = start("import time; time.sleep(600)")
    assert (process.poll(), process.wait(0.05)) == (None, None)


def test_standard_input_is_empty(start: Start) -> None:
    assert start("import sys; sys.exit(len(sys.stdin.read()))").wait(10) == 0


def test_working_directory_and_environment_are_passed_on(tmp_path: Path, log: Path) -> None:
    code = "import os; print(os.getcwd(), sorted(set(os.environ) - {'LC_CTYPE'}))"
    process = GuardedProcess(
        [sys.executable, "-I", "-S", "-c", code], env={"ONLY": "1"}, log=log, cwd=tmp_path
    )
    process.wait(10)
    assert log.read_text() == f"{tmp_path} ['GATES_GUARDED', 'ONLY']\n"


def test_stop_sends_sigterm_first(start: Start, log: Path) -> None:
    process = start(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print(0, flush=True)\ntime.sleep(600)"
    )
    pids(log)
    assert process.stop() == 5


def test_paused_process_gets_sigterm_too(start: Start, log: Path) -> None:
    process = start(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print(os.getpid(), flush=True)\ntime.sleep(600)"
    )
    (pid,) = pids(log)
    os.kill(pid, signal.SIGSTOP)
    assert process.stop() == 5


def test_stop_kills_a_process_that_ignores_sigterm(start: Start, log: Path) -> None:
    process = start(STUBBORN)
    (pid,) = pids(log)
    begun = time.monotonic()
    assert process.stop(0.3) == 128 + signal.SIGKILL
    assert 0.3 <= time.monotonic() - begun < 5
    assert not alive(pid)


def test_stopping_without_grace_kills_at_once(start: Start, log: Path) -> None:
    process = start(STUBBORN)
    pids(log)
    begun = time.monotonic()
    assert process.stop(0) == 128 + signal.SIGKILL
    assert time.monotonic() - begun < 5


def test_stopping_twice_gives_the_same_status(start: Start) -> None:
    process = start("import time; time.sleep(600)")
    assert process.stop() == process.stop() == 128 + signal.SIGTERM


def test_stopping_ends_the_whole_tree_daemons_too(start: Start, log: Path) -> None:
    process = start(SLEEPS)
    tree = pids(log)
    assert len(tree) == 4
    assert set(tree) <= set(descendants(process.pid))
    process.stop(0.5)
    assert none_of(tree)
    assert descendants(process.pid) == []


def test_a_command_that_ends_takes_its_tree_along(start: Start, log: Path) -> None:
    process = start(FAMILY_TREE)
    tree = pids(log)
    assert process.wait(15) == 0
    assert none_of(tree)


def test_a_command_that_is_killed_takes_its_tree_along(start: Start, log: Path) -> None:
    process = start(SLEEPS)
    tree = pids(log)
    os.kill(tree[0], signal.SIGKILL)
    assert process.wait(15) == 128 + signal.SIGKILL
    assert none_of(tree)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_guard_ignores_signals_of_the_terminal(start: Start, log: Path, number: int) -> None:
    process = start(SLEEPS)
    tree = pids(log)
    os.kill(process.pid, number)
    time.sleep(0.2)
    assert process.poll() is None
    assert all(alive(pid) for pid in tree)


def test_a_guard_that_is_killed_takes_the_command_along(start: Start, log: Path) -> None:
    process = start(STUBBORN)
    tree = pids(log)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: none_of(tree), "the command outlived its guard")
    assert process.stop() == -signal.SIGKILL


PARENT = """
import os, sys, time
from pathlib import Path
from pytest_vllm_gates.process.process import GuardedProcess
process = GuardedProcess([sys.executable, "-I", "-S", "-c", sys.argv[1]], env=dict(os.environ),
                         log=Path(sys.argv[2]), grace_s=0.3)
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, SLEEPS), (signal.SIGINT, SLEEPS), (signal.SIGKILL, STUBBORN)],
    ids=["killed", "interrupted", "stubborn"],
)
def test_nothing_is_left_when_the_parent_ends(log: Path, number: int, code: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, code, str(log)], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        tree = pids(log)
        os.kill(parent.pid, number)
        until(lambda: none_of([guard, *tree]), "processes were left behind")


def test_only_live_processes_count_as_outliving(start: Start, log: Path) -> None:
    process = start(STUBBORN)
    (pid,) = pids(log)
    assert still_running([pid, process.pid], 0) == {pid: "running", process.pid: "running"}
    process.stop(0)
    assert still_running([pid, process.pid], 5) == {}


def test_zombie_does_not_count_as_outliving() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: child.pid in zombies(), "the child ends")
    assert still_running([child.pid], 0) == {}
    child.wait()


def test_dying_process_gets_more_time(
    log: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A test cannot slow the kernel down: the state of a dying process is replaced.
    process = start(STUBBORN)
    (pid,) = pids(log)
    monkeypatch.setattr(
        "pytest_vllm_gates.process.process._doing", lambda _: "killed, but not gone"
    )
    threading.Timer(0.3, process.stop, (0,)).start()
    assert still_running([pid], 0, 20) == {}
    assert still_running([os.getpid()], 20, 0) == {os.getpid(): "killed, but not gone"}


def test_a_guard_that_hangs_takes_its_tree_along(
    log: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_vllm_gates.process.process.HURRY_S", 0.2)
    process = start(SLEEPS)
    tree = pids(log)
    os.kill(process.pid, signal.SIGSTOP)
    assert process.stop(0) == -signal.SIGKILL
    until(lambda: none_of(tree), "the tree outlived its guard")
