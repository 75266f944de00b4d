"""Describes what a lane serves families with, in plain words, to compare two lanes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import flags as catalog_flags
from pytest_vllm_gates.checkpoints import fingerprint
from pytest_vllm_gates.environment import bundle, installed
from pytest_vllm_gates.features import catalog as feature_catalog
from pytest_vllm_gates.lanes import freeze, gaps
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.redaction.shown import (
    redacted,
    redacted_value,
    redacted_words,
    seal,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.machine.types import Machine

NamedValues = Mapping[str, str | None]
"""Values by name; None: it cannot be known."""


@dataclass(frozen=True)
class DeployedFeature:
    """A feature that a lane turns on, and the names of the settings that do."""

    kind: str
    flags: frozenset[str]
    variables: frozenset[str]


@dataclass(frozen=True)
class BundleDescription:
    """One lane's bundle, in plain words. None: it cannot be known from here."""

    lane: str
    start: Mapping[str, str]
    """The command that runs, or the URL of the running server; without secrets."""
    versions: Mapping[str, str] | None = None
    """Versions of all packages, by normalised name."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each package's own record, by name; empty if it is not installed."""
    python: str | None = None
    cuda: str | None = None
    """The CUDA of torch; `none` for a torch without."""
    driver: str | None = None
    """The NVIDIA driver's version; `none` if no driver answers."""
    driver_cuda: str | None = None
    machine: NamedValues | None = None
    flags: Mapping[str, Mapping[str, str]] | None = None
    """vLLM's flags as they are set, by family; the lane's own flags have an empty name."""
    environment: Mapping[str, str] | None = None
    """The variables that the lane sets, without secrets."""
    features: Mapping[str, DeployedFeature] | None = None
    """The features of `features.toml` that the lane's own flags and variables turn on, by name."""
    seals: Mapping[str, bytes] = field(default_factory=dict)
    """Values that differ for different secrets, by the secret's name; they stay in this process."""
    overlay: Mapping[str, str] | None = None
    """sha256 of each effective file of the overlay, by its path inside."""
    templates: NamedValues | None = None
    """sha256 of the chat template, by family; `none` where there is none."""
    tokenizers: NamedValues | None = None
    """sha256 of the tokenizer's files, by family."""
    checkpoints: Mapping[str, NamedValues] | None = None
    """Source, revision and sha256 of the config, by family."""
    partial: bool = False
    """Whether `versions` and `flags` may be incomplete, as of a server that runs already."""
    gaps: tuple[str, ...] = ()
    """Why parts cannot be known, and how to make them known, in one sentence each."""


@dataclass(frozen=True)
class BundleChange:
    """One difference; None on a side that does not have it."""

    axis: str
    name: str
    ours: str | None
    theirs: str | None


@dataclass(frozen=True)
class BundleDiff:
    """The differences of two bundles. An axis that cannot be known is not changed, nor the same."""

    ours: str
    theirs: str
    changed: tuple[BundleChange, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]
    warning: str | None = None
    why: tuple[str, ...] = ()
    """Why axes cannot be known, and how to make them known, in one sentence each."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that changed, in the order of the report."""
        return tuple(dict.fromkeys(change.axis for change in self.changed))


GIB = 2**30
NONE = "none"
COMMAND = "command"
VLLM = "vllm"


def of(
    lane: Lane,
    environment: Environment,
    machine: Machine,
    subjects: Iterable[tuple[Family, Checkpoint]] = (),
    *,
    overlay: Path | None = None,
    without: Collection[str] = (),
    server_version: str | None = None,
) -> BundleDescription:
    """Describe what a lane serves these families' checkpoints with; nothing is booted or fetched.

    `overlay` is the folder that takes effect, `without` the names of repairs left out of it;
    `server_version` is the version that a running server reports (`GET /version`).
    """
    subjects = tuple(subjects)
    if lane.base_url is not None:
        return _running(lane, subjects, server_version)
    this_machine = machine if gather.serves_here(lane) else None
    device, cuda = bundle.serves_on(environment.folders, environment.versions)
    serve = {
        family.name: catalog_flags.serving(family, checkpoint, lane)
        for family, checkpoint in subjects
    }
    if not subjects:
        serve = {"": catalog_flags.merged(lane.serve)}
    # In a container or on another machine, the Hub's cache is a different one.
    reads_files = lane.form in ("lock", "python") and not gather.reads_elsewhere(lane)
    prints = {
        family.name: fingerprint.of(checkpoint, serve[family.name])
        if reads_files or checkpoint.folder
        else fingerprint.Fingerprint()
        for family, checkpoint in subjects
    }
    return BundleDescription(
        lane=lane.name,
        start=_start(lane),
        versions=dict(environment.versions) or None,
        contents=installed.contents(environment.folders) or freeze.contents(lane),
        python=environment.python_version,
        cuda=cuda or (NONE if device == "cpu" else None),
        driver=(this_machine.driver.version or NONE) if this_machine else None,
        driver_cuda=(this_machine.driver.cuda or NONE) if this_machine else None,
        machine=_machine(this_machine) if this_machine else None,
        flags={
            name: {flag: _flag(flag, value) for flag, value in set_.items()}
            for name, set_ in serve.items()
        },
        environment=redacted(lane.env),
        features=_features(lane),
        seals=_seals(lane, serve.values()),
        overlay=_overlay(overlay, without),
        templates={name: value.template for name, value in prints.items()} or None,
        tokenizers={name: value.tokenizer for name, value in prints.items()} or None,
        checkpoints={
            family.name: _checkpoint(checkpoint, prints[family.name])
            for family, checkpoint in subjects
        }
        or None,
        gaps=(
            *gaps.of_command(lane),
            *_file_gaps(subjects, prints if reads_files else {}),
        ),
    )


def _running(
    lane: Lane, subjects: Collection[tuple[Family, Checkpoint]], server_version: str | None
) -> BundleDescription:
    """Describe a server that runs already: its version, and its lane's facts."""
    assert lane.base_url is not None  # noqa: S101 - the caller has seen to it
    (url,) = redacted_words([lane.base_url])
    serve = catalog_flags.merged(lane.serve)
    facts = {flag: _flag(flag, value) for flag, value in serve.items()}
    families = [family.name for family, _ in subjects] or [""]
    declared = subjects if lane.checkpoint is not None else ()
    prints = {family.name: fingerprint.of(checkpoint, serve) for family, checkpoint in declared}
    return BundleDescription(
        lane.name,
        {"base_url": url},
        versions={VLLM: server_version} if server_version else None,
        flags=dict.fromkeys(families, facts) if facts else None,
        features=_features(lane) if facts else None,
        seals={"base_url": seal(lane.base_url), **_seals(lane, [lane.serve])},
        templates={name: value.template for name, value in prints.items()} or None,
        tokenizers={name: value.tokenizer for name, value in prints.items()} or None,
        checkpoints={
            family.name: _checkpoint(checkpoint, prints[family.name])
            for family, checkpoint in declared
        }
        or None,
        partial=True,
        gaps=(*gaps.of_server(lane, server_version), *_file_gaps(subjects, prints)),
    )


def _features(lane: Lane) -> dict[str, DeployedFeature]:
    """Return the features that the lane's own flags and variables turn on."""
    return {
        feature.name: DeployedFeature(feature.kind, feature.flags, frozenset(feature.env))
        for feature in feature_catalog.turned_on(feature_catalog.load(), lane.serve, lane.env)
    }


def _file_gaps(
    subjects: Collection[tuple[Family, Checkpoint]], prints: Mapping[str, fingerprint.Fingerprint]
) -> Iterable[str]:
    """Return why files of checkpoints cannot be compared."""
    if not subjects:
        return (gaps.NO_MODEL,)
    return gaps.of_files(
        (checkpoint, prints[family.name])
        for family, checkpoint in subjects
        if family.name in prints
    )


def _seals(lane: Lane, serve: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return values that differ for different secrets, by the secret's variable, flag or key."""
    redacted_env = redacted(lane.env)
    secrets = {name: value for name, value in lane.env.items() if redacted_env[name] != value}
    for flag_set in serve:
        secrets |= {
            name: json.dumps(value, sort_keys=True, default=str)
            for name, value in flag_set.items()
            if redacted_value(name, value) != value
        }
    if lane.command is not None:
        secrets[COMMAND] = shlex.join(lane.command)
    return {name: seal(value) for name, value in secrets.items()}


def _start(lane: Lane) -> dict[str, str]:
    if lane.command is not None:
        return {COMMAND: shlex.join(redacted_words(lane.command))}
    return {"server": shlex.join(lane.start.server)}


def _flag(name: str, value: Any) -> str:
    shown = redacted_value(name, value)
    return (
        shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, sort_keys=True)
    )


def _overlay(overlay: Path | None, without: Collection[str]) -> dict[str, str]:
    if overlay is None:
        return {}
    digests = fingerprint.folder(overlay)
    return {
        path: digest
        for path, digest in digests.items()
        if path.rpartition("/")[2].removesuffix(".py") not in without
    }


def _checkpoint(checkpoint: Checkpoint, prints: fingerprint.Fingerprint) -> NamedValues:
    """Describe a checkpoint: a folder has no revision, and is identified by its config."""
    values: dict[str, str | None] = {"source": checkpoint.source, "config": prints.config}
    if checkpoint.folder is None:
        values["revision"] = prints.revision or checkpoint.revision
    return values


def _machine(machine: Machine) -> dict[str, str | None]:
    gpus = [f"{device.name} ({device.capability or 'unknown'})" for device in machine.devices]
    gpu_counts = [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)]
    memory = machine.memory_bytes
    return {
        "GPU": ", ".join(gpu_counts) or NONE,
        "processor": f"{machine.cpu}, {machine.cores} cores",
        "memory": f"{memory / GIB:.0f} GiB" if memory else None,
        "system": machine.os,
    }
