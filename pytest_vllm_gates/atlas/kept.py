"""The runs that are kept: `.vllm-gates/atlas/RELEASE/FAMILY/verdict.json`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from pytest_vllm_gates import __version__
from pytest_vllm_gates.atlas import runs as atlas_runs
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.atlas.types import AtlasRun

FOLDER = Path(".vllm-gates") / "atlas"
VERDICT = "verdict.json"
INCIDENTS = "incidents"
INCIDENT = "incident.json"
LANES = "lanes"


def folder(atlas: Path, release: str, family: str) -> Path:
    """Return the folder of a kept run."""
    return atlas / release / family.replace("/", "-")


def load(atlas: Path) -> list[AtlasRun]:
    """Return every run that is kept, by release and family.

    Raises `UserError` for a verdict that cannot be read.
    """
    runs = [
        run
        for file in sorted(atlas.glob(f"*/*/{VERDICT}"))
        if _is_release(file.parent.parent.name)
        for run in _read(file)
    ]
    return sorted(runs, key=lambda run: (Version(run.release), run.family))


def _read(file: Path) -> list[AtlasRun]:
    try:
        document: Mapping[str, Any] = bounded_read.json_object(file, unique=True, whole=True)
        found = [
            bounded_read.json_object(path)
            for path in sorted((file.parent / INCIDENTS).glob(f"*/{INCIDENT}"))
        ]
        return atlas_runs.of_verdict(document, file.parent.parent.name, found)
    except (OSError, FileError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file}: cannot be read: {error}\nmake it again: vllm-gates atlas "
            f"--releases {file.parent.parent.name} --model {file.parent.name} --again"
        ) from error


def is_made(runs: list[AtlasRun], release: str, family: str, gates: str) -> bool:
    """Return whether a run of these gates by this version of the package is kept."""
    return any(
        (run.release, run.family, run.tool) == (release, family, __version__)
        and same_gates(run.gates, gates)
        for run in runs
    )


def same_gates(one: str, other: str) -> bool:
    """Return whether two expressions `not a and not b` leave out the same gates."""
    return sorted(one.split()) == sorted(other.split())


def _is_release(name: str) -> bool:
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True
