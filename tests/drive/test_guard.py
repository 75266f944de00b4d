"""The guard, as the program it is: cheap to start, and needing nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest
from survivors import none_of, until

from pytest_vllm_gates.drive import guard
from pytest_vllm_gates.drive.process import GUARD


def test_the_guard_needs_the_standard_library_alone() -> None:
    tree = ast.parse(GUARD.read_text())
    names = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_descendants_are_found_by_their_parents_and_zombies_are_not() -> None:
    sleep = "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'pass'])\n"
    code = sleep + "subprocess.Popen(['sleep', '600'])\nprint(flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        until(lambda: len(guard.descendants(child.pid)) == 1, "the zombie was counted")
        (sleeper,) = guard.descendants(child.pid)
        assert {child.pid, sleeper} <= set(guard.descendants(os.getpid()))
        guard.signal_all([child.pid, sleeper], 9)
    until(lambda: none_of([sleeper]))
    assert guard.descendants(child.pid) == []


def test_a_process_that_is_gone_can_be_signalled_again() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
    guard.signal_all([child.pid], 15)


@pytest.mark.parametrize("asked", ["0.2\n", ""])
def test_the_last_word_says_how_long_to_wait(asked: str) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN)"
    code = f"{deaf}; print(flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), "0.4", sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.communicate(asked, timeout=10)
    assert process.returncode == 128 + 9
