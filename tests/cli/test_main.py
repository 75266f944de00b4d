"""The behaviour that all commands share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_vllm_gates import __version__
from pytest_vllm_gates.cli.main import main

RUN = "import sys; from pytest_vllm_gates.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("arguments", [["signatures"], ["lane", "list"], ["servers"]])
def test_closed_pipe_ends_a_command_silently(arguments: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def run(*arguments: str, redirected: str) -> subprocess.CompletedProcess[str]:
    """Run a command with its output redirected by a shell's words."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", sys.executable, "-c", RUN, *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_full_disk_is_named() -> None:
    done = run("signatures", redirected=">/dev/full")
    assert done.stderr == "error: the output could not be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_command_without_messages_has_its_status(redirected: str) -> None:
    done = run("report", "/nowhere", redirected=redirected)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_command_without_output_has_its_status() -> None:
    done = run("signatures", redirected=">&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_program_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: vllm-gates" in capsys.readouterr().out


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"vllm-gates {__version__}\n"
