"""Finds the weights for a name: the family's own, the miniature, a folder, or a Hub id."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.toml import fold, nearest
from pytest_vllm_gates.checkpoints import miniatures, prompt_files
from pytest_vllm_gates.client import http, ready
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.family_parts import CheckpointEntry
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint

UNKNOWN = "unknown"
MOST_CHARACTERS = 300
MINIATURE = "miniature"
ASK_TIMEOUT_S = 5.0
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PATHS = ("/", "./", "../", "~")
"""The beginnings that only a path has."""


class NoFamilyError(UserError):
    """A checkpoint does not belong to a known family."""


def without_family(source: str) -> Checkpoint:
    """Return the checkpoint of a folder or a Hub id without a family."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _local(folder.resolve())
    return Checkpoint(name=source.replace("/", "--"), source=source)


def resolve(family: Family, name: str | None) -> Checkpoint:
    """Return the checkpoint of `name` for this family; None means the family's first.

    A name is in the family file, or a local folder with a `config.json`, or a Hub id. A name that
    begins like a path is always read as a folder.
    Raises `UserError` for anything else, and for a miniature whose file is not whole.
    """
    entry_of_name = {fold(entry.name): entry for entry in family.checkpoints}
    entry_of_name |= {fold(entry.hub): entry for entry in family.checkpoints if entry.hub}
    if name is None:
        return _from_entry(family.checkpoints[0])
    entry = None if _is_path(name) else entry_of_name.get(fold(name))
    if entry:
        return _from_entry(entry)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"checkpoint {str(folder)!r} has no config.json: not a checkpoint folder"
            )
        folder = folder.resolve()
        listed_entries = [entry for entry in family.checkpoints if entry.folder == str(folder)]
        return _from_entry(listed_entries[0]) if listed_entries else _local(folder)
    if HUB_ID.fullmatch(name) and not _is_path(name):
        return Checkpoint(name=name.replace("/", "--"), source=name)
    known_names = [entry.name for entry in family.checkpoints]
    guess = nearest(name, known_names)
    hint = f"; did you mean {guess!r}?" if guess else ""
    raise UserError(
        f"unknown checkpoint {name!r} of {family.name}{hint}\nknown: {', '.join(known_names)}; "
        "or name a local folder, or a Hub id such as org/name"
    )


def _is_path(name: str) -> bool:
    return name.startswith(PATHS) or name.endswith("/")


def on_lane(family: Family, lane: Lane, name: str | None = None) -> Checkpoint:
    """Return the named checkpoint, or the one that a lane serves.

    For a family without a miniature, a lane of miniatures serves the family's first checkpoint.
    """
    served = None if lane.checkpoint == MINIATURE and not miniature(family) else lane.checkpoint
    return resolve(family, name or served)


def miniature(family: Family) -> Checkpoint | None:
    """Return the family's miniature, or None."""
    miniature_entries = [entry for entry in family.checkpoints if entry.miniature is not None]
    return _from_entry(miniature_entries[0]) if miniature_entries else None


def is_source(name: str, known_families: Iterable[str]) -> bool:
    """Return whether a name is a checkpoint (a folder, a Hub id) and not a family or its member."""
    if _is_path(name):
        return True
    head = fold(name.partition("/")[0])
    if any(fold(family) == head for family in known_families):
        return False
    return Path(name).expanduser().is_dir() or bool(HUB_ID.fullmatch(name))


def family_of(source: str, project: Path) -> tuple[Family, str]:
    """Return the family of a checkpoint, by its `config.json`, and a phrase with the reason.

    Raises `UserError` if the file is not available or its architecture is not of a known family.
    """
    if _is_path(source) and not Path(source).expanduser().is_dir():
        raise UserError(
            f"folder {source!r} not found\n"
            "name a checkpoint's folder, a Hub id such as org/name, or a family"
        )
    for family in families.load_all(project):
        if any(entry.hub and entry.hub.lower() == source.lower() for entry in family.checkpoints):
            return family, " (found by its name)"
    if Path(source).expanduser().is_dir():
        for family in families.load_all(project):
            if family.entry_of_folder(source):
                return family, " (found by its folder)"
    config = prompt_files.config(source)
    architectures = tuple(config.get("architectures") or ())
    model_type = str(config.get("model_type", ""))
    recognised = families.recognise(architectures, model_type, source, project)
    architecture = ", ".join(architectures) or model_type or "none"
    if recognised is None:
        raise NoFamilyError(
            f"{source}: its config.json names the architecture {architecture}, which no known "
            "family has\n"
            "add a families/<name>.toml that lists it, or name a family with --model and the "
            "checkpoint with --checkpoint"
        )
    return recognised, f" (found by its architecture {architecture})"


def served(family: Family, endpoint: Endpoint) -> Checkpoint:
    """Return the checkpoint of a running server, by its root in `/v1/models`.

    For a server that does not answer, the checkpoint's source is meaningless: the boot gate
    reports the server's fault.
    """
    try:
        with http.client(endpoint) as client:
            models = ready.served_models(client, timeout_s=ASK_TIMEOUT_S)
    except (httpx.HTTPError, ready.NotServing):
        models = {}
    name, model = next(iter(models.items()), (UNKNOWN, {}))
    source = str(model.get("root") or name)
    for entry in family.checkpoints:
        checkpoint = _from_entry(entry)
        if source in (checkpoint.source, entry.hub):
            return checkpoint
    with contextlib.suppress(UserError, OSError):  # the server may name anything
        folder = Path(source)
        if folder.is_absolute() and folder.is_dir():
            prompt_files.config(source)
            return resolve(family, source)
        if HUB_ID.fullmatch(source) and not folder.exists():
            return resolve(family, source)
    return Checkpoint(name=UNKNOWN, source=source[:MOST_CHARACTERS])


def _from_entry(entry: CheckpointEntry) -> Checkpoint:
    if entry.miniature is not None:
        try:
            folder = miniatures.path(entry.miniature)
        except miniatures.MiniatureError as error:
            raise UserError(str(error)) from error
        return Checkpoint(
            name=entry.name,
            source=str(folder),
            serve=dict(entry.serve),
            untaught=entry.untaught,
        )
    if entry.folder is not None:
        folder = Path(entry.folder)
        if not (folder / "config.json").is_file():
            raise UserError(
                f"checkpoint {entry.name!r} is the folder {entry.folder}, which "
                f"{'has no config.json' if folder.is_dir() else 'does not exist'}: mend its "
                "family's file, or name another with --checkpoint"
            )
        return replace(_local(folder), serve=dict(entry.serve))
    assert entry.hub is not None  # noqa: S101 - the family file was checked for it
    return Checkpoint(
        name=entry.hub.replace("/", "--"),
        source=entry.hub,
        revision=entry.revision,
        serve=dict(entry.serve),
    )


def _local(folder: Path) -> Checkpoint:
    return Checkpoint(name=folder.name, source=str(folder))
