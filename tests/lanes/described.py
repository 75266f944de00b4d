"""Lanes written into a project, and their descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from machines import recorded

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints.resolve import on_lane
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.lanes import describe as lane_description

if TYPE_CHECKING:
    from pytest_vllm_gates.lanes.describe import BundleDescription

NOWHERE = Path("/nowhere")
MACHINE = recorded("h100x8")


def write(project: Path, name: str, text: str) -> lanes.Lane:
    """Write a lane into a project and read it."""
    (project / "lanes" / f"{name}.toml").write_text(f'title = "{name}"\n{text}')
    return lanes.load(name, project)


def describe(
    lane: lanes.Lane, *models: str, checkpoint: str | None = "miniature", **arguments: Any
) -> BundleDescription:
    """Return what a lane serves these families' miniatures with, or their `checkpoint`."""
    chosen = [families.load(model, NOWHERE) for model in models]
    at_hand = environment.at_hand(lane, cache=NOWHERE)
    subjects = [(family, on_lane(family, lane, checkpoint)) for family in chosen]
    return lane_description.of(lane, at_hand, MACHINE, subjects, **arguments)
