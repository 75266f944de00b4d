"""What a verdict is told with: the other lane, the bundles' difference, the way back, the past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.ending import bundles
from pytest_vllm_gates.facts import watched
from pytest_vllm_gates.lanes.diff import differences
from pytest_vllm_gates.report import document
from pytest_vllm_gates.run import other_lane
from pytest_vllm_gates.verdict import compare_lanes

if TYPE_CHECKING:
    from pytest_vllm_gates.facts.bundle_diff import BundleDiff
    from pytest_vllm_gates.session.run import Run


def bundle(of: Run) -> BundleDiff | None:
    """Return what the lanes differ in; None where there is only one."""
    if of.against is None or of.against.name == of.lane.name:
        return None
    return differences(bundles.description(of), bundles.description(of.of(of.against)))


def against(of: Run) -> dict[str, Any] | None:
    """Return how this lane's results lie beside the other's, as the report has it."""
    other = of.other.document if of.other else None
    if other is None:
        return None
    theirs = document.results(other)
    return {
        "lane": other["lane"],
        "promotion": other["promotion"],
        "document": f"{other_lane.FOLDER}/{document.NAME}",
        **compare_lanes.documents(
            compare_lanes.checks(of.results, theirs),
            compare_lanes.drift(of.results, theirs, watched.load()),
        ),
    }


def incidents(of: Run, folder: Path) -> list[dict[str, str]]:
    """Return the incidents a run left behind, their paths as they are written from a folder."""
    return [{**one, "path": seen_from(folder, one["path"])} for one in of.incidents]


def seen_from(folder: Path, path: str) -> str:
    """Return a path as it is written from a folder, where it lies in there."""
    inside = Path(path).is_relative_to(folder)
    return str(Path(path).relative_to(folder)) if inside else path
