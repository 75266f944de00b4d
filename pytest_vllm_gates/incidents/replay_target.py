"""Chooses the lane and the checkpoint of a replay: the incident's own, or a substitute."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.checkpoints.prompt_files import CONFIG, NAMES
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import checks, types
from pytest_vllm_gates.incidents.types import LANE, PROMPT_FILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.incidents.read import IncidentFolder
    from pytest_vllm_gates.incidents.types import ServedCheckpoint


def lane_of(incident_folder: IncidentFolder, project: Path) -> Lane | None:
    """Return the lane that an incident is booted on.

    It is the project's lane of that name, the incident's own lane if it may be booted, or the
    shipped lane; None if no lane has that name: then this machine's default serves. For an
    incident of a running server, only a lane of the project that names a URL counts. Raises
    `UserError` for an incident's lane that sets more than flags: its author would choose which
    programs run here.
    """
    name = incident_folder.incident.lane.name
    known = lanes.files(project)
    own = known.get(name)
    if incident_folder.incident.lane.form == "base_url":
        lane = lanes.load(name, project) if own else None
        return lane if lane and lane.base_url else None
    if LANE in incident_folder.incident.files and (own is None or own.parent == lanes.SHIPPED):
        return _carried(incident_folder, name)
    return lanes.load(name, project) if own else None


def _carried(incident_folder: IncidentFolder, name: str) -> Lane:
    path = incident_folder.folder / LANE
    # The files that it names are read from the shipped lanes' folder.
    lane = lanes.read(path, name, lanes.SHIPPED / LANE)
    rules = types.load().lane
    shipped = [lanes.load(file, lanes.SHIPPED) for file in lanes.files(lanes.SHIPPED)]
    wrong = list(checks.lane_faults(lane, rules))
    if lane.form != "lock" or lane.lock not in [shipped_lane.lock for shipped_lane in shipped]:
        wrong.append(f"{lane.form} {getattr(lane, lane.form)!r}")
    if lane.overlay not in [None, *(shipped_lane.overlay for shipped_lane in shipped)]:
        wrong.append(f"overlay {lane.overlay!r}")
    if lane.start not in [lanes.StartCommand(), *(shipped_lane.start for shipped_lane in shipped)]:
        wrong.append("start")
    if wrong:
        raise UserError(
            f"the project has no lane {name!r}, and the lane in the incident's folder is not "
            f"booted: it sets {', '.join(fault.strip() for fault in dict.fromkeys(wrong))}, "
            "which could run any program\n"
            f"check {path}; if you trust it, copy it to lanes/{name}.toml, or name "
            "another lane: --lane NAME"
        )
    return lane


def checkpoint_of(incident_folder: IncidentFolder, family: Family) -> tuple[Checkpoint, str]:
    """Return the weights that an incident is replayed with, and a note on them.

    They are the incident's weights if this machine has them. Otherwise, for a gate above the
    weights, they are the family's miniature, with the incident's prompt files if it has any. Raises
    `UserError` if neither works.
    """
    checkpoint, prompts = incident_folder.incident.checkpoint, incident_folder.names(PROMPT_FILES)
    if (local := _here(checkpoint, family, shipped=not prompts)) is not None:
        return local, ""
    small = checkpoints_resolve.miniature(family)
    if small is None or incident_folder.incident.gate not in types.load().above_the_weights:
        why = "it has no miniature" if small is None else "its gate judges the weights"
        raise UserError(
            f"the incident's checkpoint {checkpoint.source} is not on this machine, and {why}: "
            "name it with --checkpoint"
        )
    absent = f"the checkpoint {checkpoint.source} is not on this machine"
    if prompts:
        made = _with_prompt_files(incident_folder, prompts, small, checkpoint.name)
        return made, f"{absent}: prompt files are the incident's, weights are the miniature's"
    return (
        small,
        f"{absent}: the miniature replaces it, because the gate does not judge the weights",
    )


def _here(recorded: ServedCheckpoint, family: Family, *, shipped: bool) -> Checkpoint | None:
    """Return an incident's checkpoint if this machine has it."""
    if Path(recorded.source).is_dir():
        checkpoint = checkpoints_resolve.resolve(family, recorded.source)
        small = checkpoints_resolve.miniature(family)
        if small and small.source == checkpoint.source:  # a folder, and listed with flags
            checkpoint = small
        return replace(checkpoint, name=recorded.name)
    for listed in family.checkpoints:
        if recorded.name in (listed.name, (listed.hub or "").replace("/", "--")) and shipped:
            known = checkpoints_resolve.resolve(family, listed.name)
            return known if known.folder or is_cached(known) else None
    plain = Checkpoint(recorded.name, recorded.source, recorded.revision)
    return plain if is_cached(plain) else None


def is_cached(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint of the Hub is in this machine's cache."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - only for a replay
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        path = try_to_load_from_cache(
            checkpoint.source, CONFIG, revision=checkpoint.revision or "main"
        )
    except HFValidationError:  # a path of another machine
        return False
    return isinstance(path, str)


def _with_prompt_files(
    incident_folder: IncidentFolder, prompts: Sequence[str], small: Checkpoint, name: str
) -> Checkpoint:
    """Return a folder with a miniature's weights and the incident's prompt files.

    It is deleted when this process ends.
    """
    temporary = tempfile.TemporaryDirectory(prefix="vllm-gates-replay-")
    folder = Path(temporary.name) / name
    atexit.register(temporary.cleanup)
    folder.mkdir()
    for path in Path(small.source).iterdir():
        if path.name not in NAMES or path.name == CONFIG:
            (folder / path.name).symlink_to(path)
    for prompt in prompts:
        # The miniature's files are links: a copy onto one would be written into the package.
        if Path(prompt).name not in NAMES or Path(prompt).name == CONFIG:
            raise UserError(
                f"the incident {incident_folder.folder} contains {prompt}, which is not a prompt "
                "file\n"
                f"known: {', '.join(name for name in NAMES if name != CONFIG)}"
            )
        shutil.copyfile(incident_folder.folder / prompt, folder / Path(prompt).name)
    return replace(small, name=name, source=str(folder))
