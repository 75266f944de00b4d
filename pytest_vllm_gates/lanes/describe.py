"""What a lane serves families with, in plain words, to be held against another's."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.checkpoints import fingerprint
from pytest_vllm_gates.drive import frozen
from pytest_vllm_gates.environment import bundle, installed
from pytest_vllm_gates.facts.bundle_diff import BundleDescription, Told
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.redaction.redactor import REDACTED
from pytest_vllm_gates.redaction.shown import is_secret_flag, redacted, redacted_words, seal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.machine.types import Machine

GIB = 2**30
NONE = "none"
COMMAND = "command"


def of(
    lane: Lane,
    environment: Environment,
    machine: Machine,
    subjects: Iterable[tuple[Family, Checkpoint]] = (),
    *,
    overlay: Path | None = None,
    without: Collection[str] = (),
) -> BundleDescription:
    """Return what a lane serves these families' checkpoints with; nothing is booted or fetched.

    `overlay` is the folder that takes effect, `without` the names of repairs left out of it.
    """
    subjects = tuple(subjects)
    if lane.base_url is not None:
        (url,) = redacted_words([lane.base_url])
        return BundleDescription(
            lane.name, {"base_url": url}, seals={"base_url": seal(lane.base_url)}
        )
    here = machine if gather.serves_here(lane) else None
    device, cuda = bundle.serves_on(environment.folders, environment.versions)
    serve = {family.name: flags.serving(family, one, lane) for family, one in subjects}
    if not subjects:
        serve = {"": flags.merged(lane.serve)}
    # In a container or elsewhere the Hub's cache is another.
    own = lane.form in ("lock", "python") and not gather.reads_elsewhere(lane)
    prints = {
        family.name: fingerprint.of(one, serve[family.name])
        if own or one.folder
        else fingerprint.Fingerprint()
        for family, one in subjects
    }
    return BundleDescription(
        lane=lane.name,
        start=_start(lane),
        versions=dict(environment.versions) or None,
        contents=installed.contents(environment.folders) or frozen.contents(lane),
        python=environment.python_version,
        cuda=cuda or (NONE if device == "cpu" else None),
        driver=(here.driver.version or NONE) if here else None,
        driver_cuda=(here.driver.cuda or NONE) if here else None,
        machine=_machine(here) if here else None,
        flags={
            name: {flag: _flag(flag, one) for flag, one in set_.items()}
            for name, set_ in serve.items()
        },
        environment=redacted(lane.env),
        seals=_seals(lane, serve.values()),
        overlay=_overlay(overlay, without),
        templates={name: one.template for name, one in prints.items()} or None,
        tokenizers={name: one.tokenizer for name, one in prints.items()} or None,
        checkpoints={family.name: _checkpoint(one, prints[family.name]) for family, one in subjects}
        or None,
    )


def _seals(lane: Lane, serve: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return what tells secrets apart, by the variable, the flag or the key that has one."""
    shown = redacted(lane.env)
    found = {name: value for name, value in lane.env.items() if shown[name] != value}
    for flag_set in serve:
        found |= {name: str(one) for name, one in flag_set.items() if is_secret_flag(name)}
    if lane.command is not None:
        found[COMMAND] = shlex.join(lane.command)
    return {name: seal(value) for name, value in found.items()}


def _start(lane: Lane) -> dict[str, str]:
    if lane.command is not None:
        return {COMMAND: shlex.join(redacted_words(lane.command))}
    return {"server": shlex.join(lane.start.server)}


def _flag(name: str, value: Any) -> str:
    if is_secret_flag(name):
        return REDACTED
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )


def _overlay(overlay: Path | None, without: Collection[str]) -> dict[str, str]:
    if overlay is None:
        return {}
    found = fingerprint.folder(overlay)
    return {
        path: digest
        for path, digest in found.items()
        if path.rpartition("/")[2].removesuffix(".py") not in without
    }


def _checkpoint(checkpoint: Checkpoint, found: fingerprint.Fingerprint) -> Told:
    """Return what a checkpoint is: a folder has no revision, and is told by its config."""
    told: dict[str, str | None] = {"source": checkpoint.source, "config": found.config}
    if checkpoint.folder is None:
        told["revision"] = found.revision or checkpoint.revision
    return told


def _machine(machine: Machine) -> dict[str, str | None]:
    gpus = [f"{one.name} ({one.capability or 'unknown'})" for one in machine.devices]
    counted = [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)]
    memory = machine.memory_bytes
    return {
        "GPU": ", ".join(counted) or NONE,
        "processor": f"{machine.cpu}, {machine.cores} cores",
        "memory": f"{memory / GIB:.0f} GiB" if memory else None,
        "system": machine.os,
    }
