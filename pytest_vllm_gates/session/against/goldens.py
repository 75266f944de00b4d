"""The other lane's outputs in place of a golden: a comparison of two lanes needs none recorded.

The other lane's gates run first. Without a golden, they write their outputs into a folder of their
report; this lane's gates read it there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.session.golden_folders import FOLDER, folder

if TYPE_CHECKING:
    from pytest_vllm_gates.session.run import Run, Subject

REPORT = "against"
"""The folder of the other lane's report, below this run's."""
VARIABLE = "VLLM_GATES_SEEN_GOLDENS"
"""The folder to which the run on the other lane writes."""


def of_the_other_lane() -> bool:
    """Return whether this run is the one on the other lane of `--against`."""
    return VARIABLE in os.environ


def folder_to_write(subject: Subject) -> Path | None:
    """Return the folder for outputs without a golden; None in a run without another lane."""
    root = os.environ.get(VARIABLE)
    return folder(Path(root), subject) if root else None


def seen_folder(run: Run, subject: Subject) -> Path | None:
    """Return the folder of the other lane's texts; None if this run has no other lane.

    A worker of xdist knows of the other lane's run by its folder alone.
    """
    report, other = run.options.report_dir, run.against
    if report is None or other is None or other.name == run.lane.name:
        return None
    return folder(report / REPORT / FOLDER, subject)


def note(run: Run, gate: str) -> None:
    """Note once, for the end of the run, that a gate compared with the other lane."""
    lane = run.against.name if run.against else "the other lane"
    text = f"{gate}: no golden is recorded; compared with the output of lane {lane}"
    if text not in run.notes:
        run.notes.append(text)
