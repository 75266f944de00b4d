"""Reads `vllm-gates explain --context`: a lane, an inventory, a model's or server's config."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from pytest_vllm_gates import files
from pytest_vllm_gates.bounded import read, syntax, yaml_text
from pytest_vllm_gates.bounded.errors import MalformedError
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.environment.types import Bundle
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import inspect as machine_inspect, recorded
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.preflight.types import Situation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_BYTES = 2**22
MODELS_OWN = frozenset({"model_type", "architectures"})
"""Keys of a model's config.json."""
FOREIGN = frozenset({"apiVersion", "services", "jobs", "spec"})
"""Keys of manifests of Kubernetes, Docker Compose and CI, whose flags are nested deeper."""
BUNDLE = TypeAdapter(Bundle)


def situation_of(
    contexts: Iterable[str], lane: str | None, *, here: bool, project: Path
) -> Situation | None:
    """Return the known facts about a log's origin, or None.

    Raises `UserError` for a context that is none of the three.
    """
    inventories, configs = [], []
    for context in contexts:
        if not Path(context).is_file():
            lane = _lane_name(context, project)
        elif (document := _document(Path(context))) and "machine" in document:
            inventories.append((context, document))
        else:
            configs.append((context, document))
    if lane is None and not here and not inventories and not configs:
        return None
    known = Situation(lane="", machine=None, model=Model(""))
    if here or (lane is not None and not inventories):
        known = replace(known, machine=machine_inspect.inspect(), environment=dict(os.environ))
    if lane is not None:
        known = _of_lane(known, lane, project)
    for context, document in inventories:
        known = _of_inventory(known, context, document)
    for context, document in configs:
        if MODELS_OWN & document.keys():
            known = replace(known, model=Model(context, config=document))
        else:
            known = replace(known, serve={**known.serve, **_flags(context, document)})
    return known


def _lane_name(context: str, project: Path) -> str:
    if context in lanes.files(project):
        return context
    raise UserError(
        f"--context {context}: neither a lane ({', '.join(sorted(lanes.files(project)))}) nor a "
        "file: an inventory (`vllm-gates inventory --json`), a model's config.json, or the YAML or "
        "JSON of `vllm serve --config`"
    )


def _of_lane(known: Situation, lane: str, project: Path) -> Situation:
    made = lanes.load(lane, project)
    bundle = gather.of(environment.at_hand(made, cache=files.default_cache()))
    return replace(
        known, lane=made.name, bundle=bundle, serve=made.serve,
        environment={**known.environment, **made.env},
    )  # fmt: skip


def _of_inventory(known: Situation, context: str, document: Mapping[str, Any]) -> Situation:
    try:
        machine = recorded.machine_of(document)
        if isinstance(bundle := document.get("bundle"), dict) and not known.bundle.versions:
            names = ("versions", "device", "torch_cuda", "nccl")
            told = {name: bundle[name] for name in names if bundle.get(name)}
            known = replace(known, bundle=BUNDLE.validate_python(told))
    except ValueError as error:
        raise MalformedError(Path(context), f"is not an inventory: {error}") from error
    return replace(
        known, machine=machine, environment={**known.environment, **dict(machine.environment)}
    )


def _flags(context: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    if not document:
        raise MalformedError(Path(context), "contains no flags: expected `name: value` lines")
    if unknown := sorted(FOREIGN & document.keys()):
        raise MalformedError(
            Path(context),
            f"is not a config of `vllm serve --config`: {unknown[0]!r} is not a flag of it\n"
            "write only the flags, such as `max-model-len: 8192`",
        )
    return {str(name).replace("-", "_"): value for name, value in document.items()}


def _document(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file, or the mapping of a YAML one."""
    text = read.text(path, MOST_BYTES)
    try:
        if text.lstrip().startswith("{"):
            document = syntax.json_value(text)
        else:
            document = yaml_text.mapping(text)
    except syntax.BadSyntaxError as error:
        raise MalformedError(path, f"is neither JSON nor YAML: {error}") from error
    return document if isinstance(document, dict) else {}
