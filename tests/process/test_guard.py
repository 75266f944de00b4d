"""The guard as a program: its imports, its signals, and the output it passes on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from survivors import none_of, until

import pytest_vllm_gates
from pytest_vllm_gates.process import guard
from pytest_vllm_gates.process.process import GUARD
from pytest_vllm_gates.redaction.prompts import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_vllm_gates.__file__).parent
UNTOLD = ["-1"]
"""No descriptor for the process group's id: it is not read here."""


def needed(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports to run, and those that the package's modules import."""
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            inner = name.split(".")
            if inner[0] == PACKAGE.name:
                module = PACKAGE.parent / Path(*inner[:3])
                places = (module.with_suffix(".py"), module.parent.with_suffix(".py"))
                package = module.parent / "__init__.py"
                yield from needed(next((file for file in places if file.exists()), package))
            else:
                yield inner[0]


def test_the_guard_needs_the_standard_library_alone() -> None:
    names = set(needed(GUARD))
    assert "html" in names, "its imports from the package were not followed"
    assert names <= sys.stdlib_module_names


def test_descendants_leave_out_zombies() -> None:
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


# Its first thread ends first, as in a killed process whose other threads have more to free.
HEADLESS = """
import ctypes, platform, subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
threading.Thread(target=time.sleep, args=(600,)).start()
print(child.pid, flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60}.get(platform.machine(), 93), 0)  # exit(2)
"""


def test_process_is_alive_while_one_of_its_threads_is() -> None:
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        state = Path(f"/proc/{process.pid}/stat")
        until(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z")
        assert set(guard.descendants(os.getpid())) >= {process.pid, child}
        guard.signal_all([process.pid, child], 9)
    until(lambda: none_of([child]))


def test_signal_to_a_finished_process_is_ignored() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
    guard.signal_all([child.pid], 15)


@pytest.mark.parametrize("last_line", ["0.2\n", ""])
def test_last_line_sets_the_grace_period(last_line: str) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN)"
    code = f"{deaf}; print(flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), "0.4", *UNTOLD, sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.communicate(last_line, timeout=10)
    assert process.returncode == 128 + 9


# The command's output goes through the guard.


def written(code: str, *arguments: str, **environment: str) -> str:
    """Return a program's output behind the guard."""
    argv = [sys.executable, "-I", "-S", str(GUARD), "0.5", *UNTOLD]
    with subprocess.Popen(
        [*argv, sys.executable, "-I", "-S", "-c", code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={"PATH": os.environ["PATH"], **environment},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        return process.stdout.read()


WRITE = "import os, sys, time\ndef write(text): os.write(1, text.encode())\n"


def test_secrets_of_environment_and_arguments_are_redacted() -> None:
    code = (
        "print(os.environ['SOME_TOKEN'], sys.argv, os.environ['PROXY'])\n"
        "print('and', os.environ['SOME_TOKEN'], file=sys.stderr)"
    )
    output = written(
        WRITE + code, "--api-key", "letmein-arg", "--port", "80",
        SOME_TOKEN="letmein-env", PROXY="http://me:letmein-url@proxy",
    )  # fmt: skip
    assert "letmein" not in output
    assert output.count("[redacted]") == 4
    assert "'--port', '80'" in output


def test_secret_written_in_parts_is_redacted() -> None:
    code = "for part in ('key: let', 'mein-', 'env', ' and on\\n'): write(part); time.sleep(0.4)"
    assert written(WRITE + code, SOME_TOKEN="letmein-env") == "key: [redacted] and on\n"


def test_long_output_is_passed_on_completely() -> None:
    code = "for at in range(40000): print(at, 'x' * 40, flush=at == 39999)\nwrite('the end')"
    lines = written(WRITE + code).splitlines()
    assert len(lines) == 40001
    assert lines[39999] == f"39999 {'x' * 40}"


def test_prompts_in_the_log_are_dropped_on_request() -> None:
    code = "print(\"Received request 1: prompt: 'Mrs Schmidt', params: x\")"
    assert "Mrs Schmidt" in written(code)
    assert "prompt: '[dropped]', params: x" in written(code, **{VARIABLE: "hash"})


def test_line_without_newline_is_passed_on_at_once() -> None:
    code = WRITE + "write('one two three four five '); time.sleep(60)"
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), "0", *UNTOLD, *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read(8) == b"one two "
        process.communicate(b"0\n", timeout=10)


def test_full_log_does_not_block_the_command() -> None:
    code = "for at in range(9000): print('x' * 80)\nsys.exit(7)"
    full = Path("/dev/full").open("wb")  # noqa: SIM115 - closed below
    with full, subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), "0", *UNTOLD, sys.executable, "-c", WRITE + code],
        stdin=subprocess.PIPE, stdout=full, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        begun = time.monotonic()
        assert process.wait(20) == 7
        assert time.monotonic() - begun < 20
