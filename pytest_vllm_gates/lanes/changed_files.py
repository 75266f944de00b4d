"""Finds the families and lanes that changed files affect, for a check before a commit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
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

SHIPPED_LANE = "cpu"
NOWHERE = Machine(os="", python="", cpu="", cores=0, memory_bytes=None, gpus=())


@dataclass(frozen=True)
class Concerned:
    """A family on a lane of a project."""

    project: Path
    lane: Lane
    family: str


def concerned(changed: Iterable[Path]) -> list[Concerned]:
    """Return affected families: every family of a changed lane, every lane of a changed family.

    A file's project is the folder that contains its `lanes/` or `families/`. The lanes of a family
    are the project's, or the shipped CPU lane if it has none. Raises `UserError` for a file that is
    not a lane's or a family's, or that is malformed.
    """
    found: dict[tuple[Path, str, str], Concerned] = {}
    for path in changed:
        project = path.absolute().parent.parent
        lane_files, family_files = lanes.files(project), families.files(project)
        if name := _name(path, lane_files):
            lane = lanes.load(name, project)
            served = (each for each, why in every_family(project, lane).items() if not why)
            pairs = [Concerned(project, lane, each) for each in served]
        elif name := _name(path, family_files):
            families.load(name, project)
            own = [lane for lane, file in lane_files.items() if file.is_relative_to(project)]
            pairs = [
                Concerned(project, lanes.load(lane, project), name)
                for lane in own or [SHIPPED_LANE]
            ]
        else:
            raise UserError(
                f"{path} is neither a lane nor a family\n"
                "name files that lie in lanes/ or families/ of a project"
            )
        found |= {(each.project, each.lane.name, each.family): each for each in pairs}
    return [*found.values()]


def situation(family: Family, checkpoint: Checkpoint, lane: Lane) -> Situation:
    """Return the facts of a boot on a machine of which nothing is known."""
    at_hand = environment.at_hand(lane, cache=files.default_cache())
    gathered = gather.gather(family, checkpoint, lane, at_hand, NOWHERE, elsewhere=True)
    return dataclasses.replace(gathered, machine=None)


def _name(path: Path, known: dict[str, Path]) -> str:
    real = path.resolve()
    return next((name for name, each in known.items() if each.resolve() == real), "")
