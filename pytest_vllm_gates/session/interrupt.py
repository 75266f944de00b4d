"""Ctrl-C in a run: what was not judged holds the verdict.

The server does not get the signal: `process/guard.py` shields it, and the run ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.session.run import Run


def note(run: Run) -> None:
    """Remember that the run was cut short."""
    run.interrupted = True


def holds(run: Run) -> Iterator[str]:
    """Yield why an interrupted run cannot promote."""
    if run.interrupted:
        yield "the run was interrupted"
