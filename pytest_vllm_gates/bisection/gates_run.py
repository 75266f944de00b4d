"""Runs pytest with gates as a process, and reads its verdict."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.process.process import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

POLL_S = 0.5
VERDICT, LOG = "verdict.json", "pytest.log"


def run(
    arguments: Sequence[str], *, project: Path, folder: Path, say: Callable[[str], None], name: str
) -> tuple[int | None, Any]:
    """Run pytest in a project; `folder` gets the report and the log.

    Returns its exit status and the verdict's document, or None without a verdict. Blocks until
    boots and gates end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VERDICT).unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "--rootdir", str(project), "-p", "no:cacheprovider",
             *arguments, "--gates-report", str(folder)]  # fmt: skip
    log = folder / LOG
    log.unlink(missing_ok=True)
    started = time.monotonic()
    process = GuardedProcess(words, env=dict(os.environ), log=log, cwd=project)
    try:
        while process.poll() is None:
            say(f"{name}: {time.monotonic() - started:.0f} s")
            process.wait(POLL_S)
    finally:
        status = process.stop()
    try:
        return status, bounded_read.json(folder / VERDICT, unique=True, whole=True)
    except (OSError, FileError):
        return status, None
