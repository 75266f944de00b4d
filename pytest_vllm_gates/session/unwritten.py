"""Files that a run could not write: listed once at its end, with no effect on the verdict.

A full disk or a missing folder is a fault of the machine that judges, and not of the server.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.outcomes import Infrastructure

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.session.run import Run

PREFIX = "vllm-gates-"


def working_folder(run: Run, scratch: Callable[[], Path] | None = None) -> Path:
    """Return the folder for servers' logs: the report's, else the one that `scratch` makes.

    A report folder that cannot be written is noted once. Raises `Infrastructure` if a temporary
    folder cannot be written either.
    """
    if run.scratch:
        return run.scratch
    problem = None
    if folder := run.options.report_dir:
        try:
            files.probe(folder)
        except WriteError as error:
            problem = error
        else:
            return folder
    try:
        temporary = scratch() if scratch else Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise Infrastructure(
            f"the server's log cannot be written: {error.strerror}: {error.filename}\n"
            f"free some space, or set TMPDIR to another folder: df -h {tempfile.gettempdir()}"
        ) from error
    if problem:
        run.scratch = temporary
        note(
            run,
            f"the report's folder {folder} cannot be written: {problem.strerror} "
            f"({problem.advice}); the servers' logs are in {temporary}",
        )
    return temporary


def note(run: Run, line: str) -> None:
    """Have a line printed at the end of the run, once."""
    if line not in run.notes:
        run.notes.append(line)


def lose_incident(run: Run, test: str, error: Exception) -> None:
    """Note that no incident of a test could be written; those of one cause become one line."""
    if isinstance(error, WriteError):
        folder = Path(error.filename).parent
        cause = f"{folder} was not written: {error.strerror}\n  {error.advice}"
    elif isinstance(error, UserError):
        cause = str(error)
    else:
        cause = f"{type(error).__name__}: {error}"
    run.incidents_lost.setdefault(cause, []).append(test)


def lines(run: Run) -> list[str]:
    """Return the lines for the end of a run besides its verdict."""
    lost = []
    for cause, tests in run.incidents_lost.items():
        more = f" and {len(tests) - 1} more tests" if len(tests) > 1 else ""
        lost.append(f"no incident was written of {tests[0]}{more}: {cause}")
    return [*run.notes, *lost]
