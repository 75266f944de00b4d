"""Resolves `--model`, `--checkpoint` and `--lane`, for the plugin and every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.machine.types import Machine


def lane(name: str | None, project: Path, machine: Machine) -> tuple[Lane, str]:
    """Return the lane of that name, or this machine's default, and a phrase with the reason.

    Raises `UserError` for an unknown name or a faulty file.
    """
    if name:
        return lanes.load(name, project), "asked for"
    if machine.gpus:
        return lanes.load(default(machine), project), f"an NVIDIA GPU answers: {machine.gpus[0]}"
    return lanes.load(default(machine), project), "no NVIDIA GPU answers"


def default(machine: Machine) -> str:
    """Return the name of the default lane."""
    return "cuda" if machine.gpus else "cpu"


def family(name: str, project: Path) -> tuple[Family, str | None, str]:
    """Return the family of a name, the weights if they were named, and the reason.

    A name is a family's, a member's, a checkpoint's folder or a Hub id. Raises `UserError` for
    anything else.
    """
    if not resolve.is_source(name, families.files(project)):
        return families.load(name, project), None, ""
    found, why = resolve.family_of(name, project)
    return found, name, why


def served(
    model: str, checkpoint: str | None, on: Lane, project: Path
) -> tuple[Family, Checkpoint, str]:
    """Return the family and the weights of a lane, and how the family was found."""
    found, source, why = family(model, project)
    if source:
        return found, resolve.resolve(found, source), why
    return found, resolve.on_lane(found, on, checkpoint), why
