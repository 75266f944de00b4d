"""The behaviour that all commands share."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
