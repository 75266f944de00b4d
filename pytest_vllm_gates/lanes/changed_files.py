"""Finds what files of lanes and families concern, for a check before they are committed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes.families import every_family
from pytest_vllm_gates.machine.types import Machine
from pytest_vllm_gates.preflight import gather

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.preflight.types import Situation

NOWHERE = Machine(os="", python="", cpu="", cores=0, memory_bytes=None, gpus=())


def concerned(changed: Iterable[Path], project: Path) -> list[tuple[Lane, str]]:
    """Return lanes with the names of families: all of a changed lane, and a changed one's lanes.

    The lanes of a changed family are the project's; the shipped one of a CPU where it has none.
    Raises `UserError` for a file that is neither a lane's nor a family's, or is not as one is.
    """
    lane_files, family_files = lanes.files(project), families.files(project)
    own = [name for name, path in lane_files.items() if path.is_relative_to(project)]
    found: dict[tuple[str, str], Lane] = {}
    for path in changed:
        if name := _name(path, lane_files):
            lane = lanes.load(name, project)
            served = (each for each, why in every_family(project, lane).items() if not why)
            found |= {(name, each): lane for each in served}
        elif name := _name(path, family_files):
            families.load(name, project)
            for lane_name in own or ["cpu"]:
                found[lane_name, name] = lanes.load(lane_name, project)
        else:
            raise UserError(
                f"{path} is no lane or family of the project {project}\n"
                "name files of lanes/ and families/"
            )
    return [(lane, family) for (_, family), lane in found.items()]


def situation(family: Family, checkpoint: Checkpoint, lane: Lane) -> Situation:
    """Return what is known of a boot on a machine of which nothing is known."""
    at_hand = environment.at_hand(lane, cache=files.default_cache())
    gathered = gather.gather(family, checkpoint, lane, at_hand, NOWHERE, elsewhere=True)
    return dataclasses.replace(gathered, machine=None)


def _name(path: Path, known: dict[str, Path]) -> str:
    real = path.resolve()
    return next((name for name, each in known.items() if each.resolve() == real), "")
