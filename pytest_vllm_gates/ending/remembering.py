"""A run joins its project's history, and the report gets the runs before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.history.types import entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.session.run import Run

RUNS_IN_REPORT = 50


def remember(run: Run, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Add a run to the history; return the last runs, this one at the end, for its report.

    What goes wrong with the history is told at the end of the run, and fails nothing.
    """
    path = run.options.history
    if path is None or run.options.repro:  # an incident sent again judges no bundle
        return []
    now = entry(document)
    try:
        history_store.append(path, now)
        return [one.document() for one in history_store.runs(path, RUNS_IN_REPORT)]
    except UserError as error:
        run.notes.append(f"not in the history: {error}")
        return [now.document()]
