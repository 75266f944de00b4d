"""Gathers the input of the preflight checks: machine, environment, checkpoint, flags."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.catalog import flags, releases
from pytest_vllm_gates.checkpoints import files as checkpoint_files
from pytest_vllm_gates.environment import (
    bundle,
    fatbin,
    libraries,
    overlay,
    parsers,
    server_flags,
)
from pytest_vllm_gates.environment.types import Bundle, Library
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.preflight.types import Node, Situation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.machine.types import Machine

# Commands that serve on this machine, in a container.
CONTAINERS = {"docker", "podman", "nerdctl", "apptainer", "singularity"}
# Variables that define the source of checkpoints, and the access to it.
OWN_WAYS = ("HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HUGGING",
            "VLLM_USE_MODELSCOPE", "HTTP", "http")  # fmt: skip
HOST_IP = "VLLM_HOST_IP"
# Variables of vLLM that name a library.
FILES = ("VLLM_NCCL_SO_PATH",)
# `--env=NAME=VALUE`, `--env=NAME`, `NAME=VALUE` after `-e`.
ASSIGNED = re.compile(r"(?:--env=|-e)?([A-Z][A-Z0-9_]*)(?:=(.*))?")


def gather(
    family: Family | None,
    checkpoint: Checkpoint,
    lane: Lane,
    environment: Environment,
    machine: Machine,
    *,
    env: Mapping[str, str] | None = None,
    nodes: Sequence[Node] = (),
    renderer: bool = False,
    elsewhere: bool = False,
) -> Situation:
    """Return everything known before a boot of this checkpoint on this lane.

    A checkpoint without a family is served with the lane's flags only. `elsewhere` is for another
    machine: its own variables count, and this machine's addresses, files and limits do not.
    """
    is_ours = lane.form in ("lock", "python")
    if family:
        serve = flags.serving(family, checkpoint, lane)
    else:
        serve = flags.merged(checkpoint.serve, lane.serve)
    runs_here = serves_here(lane)
    if is_ours:
        own: Mapping[str, str] = machine.environment if elsewhere else os.environ
        variables = {**own, **lane.env, **(env or {})}
    else:
        variables = _container_variables(lane)
    local = is_ours and not elsewhere
    brought = of(environment)
    if local and brought.libraries:
        compiled = libraries.compiled_here(variables)
        brought = dataclasses.replace(brought, libraries=(*brought.libraries, *compiled))
    return Situation(
        lane=lane.name,
        machine=machine if runs_here else None,
        model=checkpoint_files.read(checkpoint, reads_alike=is_ours and not reads_elsewhere(lane)),
        bundle=brought,
        serve=serve,
        environment=variables,
        expects=lane.expects,
        waived=lane.waive,
        native=family.native_context(checkpoint.source) if family else None,
        unknown_parser=parsers.unknown(environment.folders, serve),
        parsers_known=all(
            parsers.known_parsers(environment.folders, flag) for flag in parsers.REGISTRIES
        ),
        known_flags=_known_flags(environment),
        nodes=tuple(nodes),
        renderer=renderer,
        own_address=_own_address(variables.get(HOST_IP, "")) if local else None,
        repairs=tuple(each.name for each in overlay.repairs(lane.overlay_path))
        if is_ours
        else None,
        thinks=family.thinking is not None if family and is_ours else None,
        nccl_library=_nccl_library(variables) if local else None,
        missing_files=_missing_files(variables) if local else {},
        own_limits=is_ours and (not elsewhere or machine.limits.open_files is not None),
    )


def _known_flags(environment: Environment) -> frozenset[str]:
    """Return the flags of an environment's vLLM from its source, else from the release table."""
    if found := server_flags.installed(environment.folders):
        return found
    return releases.flags(environment.vllm) if environment.vllm else frozenset()


def _own_address(address: str) -> bool | None:
    """Return whether this machine has an address; None for an empty or invalid one."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, address)
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                try:
                    probe.bind((address, 0))
                except OSError:
                    return False
                return True
    return None


def _missing_files(variables: Mapping[str, str]) -> dict[str, str]:
    paths = {name: variables[name] for name in FILES if variables.get(name)}
    return {name: path for name, path in paths.items() if not Path(path).is_file()}


def _nccl_library(variables: Mapping[str, str]) -> Library | None:
    """Return the NCCL that a variable names, with its code; None if there is none."""
    path = variables.get(FILES[0], "")
    containers = fatbin.containers(Path(path)) if path else frozenset()
    return Library(path, containers) if containers else None


def serves_here(lane: Lane) -> bool:
    """Return whether the lane's servers run on this machine, possibly in a container."""
    is_ours = lane.form in ("lock", "python")
    return is_ours or (lane.command is not None and Path(lane.command[0]).name in CONTAINERS)


def _container_variables(lane: Lane) -> dict[str, str]:
    """Return the variables that a command passes to its container: others stay outside."""
    words = [ASSIGNED.fullmatch(word) for word in lane.command or ()]
    assignments = [(word[1], word[2]) for word in words if word]
    return {
        name: value if value is not None else os.environ.get(name, "")
        for name, value in assignments
    }


def reads_elsewhere(lane: Lane) -> bool:
    """Return whether the lane sets its own way to fetch checkpoints."""
    return any(name.startswith(OWN_WAYS) for name in lane.env)


def of(environment: Environment) -> Bundle:
    """Return the packages of an environment; an empty bundle if it cannot be inspected."""
    if not environment.versions:
        return Bundle()
    return bundle.read(environment.folders, environment.versions)


def node(path: Path) -> Node:
    """Read another node from the file that `vllm-gates inventory --json` wrote there.

    Raises `UserError` for any other file.
    """
    try:
        inventory: Any = bounded_read.json(path, unique=True, finite=True, whole=True)
    except FileError as error:
        raise UserError(f"{path}: cannot be read as JSON: {error.why}") from error
    machine = inventory.get("machine") if isinstance(inventory, dict) else None
    if not isinstance(machine, dict):
        raise UserError(
            f"{path}: not an inventory\nrecord one on that node: "
            f"vllm-gates inventory --lane LANE --json > {path.name}"
        )
    bundle_part = inventory.get("bundle")
    versions = bundle_part.get("versions") if isinstance(bundle_part, dict) else None
    if not isinstance(versions, dict):
        versions = {}
    return Node(path.stem, machine, {str(name): str(version) for name, version in versions.items()})
