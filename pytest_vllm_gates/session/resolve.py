"""Resolves the options to a run: its lane, its families and their checkpoints."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.adapters import files as adapter_files
from pytest_vllm_gates.catalog import (
    conversation as conversations,
    known_defects,
    lane as lanes,
    waivers as waiving,
)
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.catalog.waivers import of_lane
from pytest_vllm_gates.checkpoints import named, resolve as checkpoints_resolve
from pytest_vllm_gates.client import endpoint
from pytest_vllm_gates.client.tape import Tape
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.environment.overlay import WITHOUT_VARIABLE, repairs
from pytest_vllm_gates.features import catalog as feature_catalog
from pytest_vllm_gates.lanes import families as lane_families
from pytest_vllm_gates.load import traces
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.options.defaults import ALL
from pytest_vllm_gates.redaction import prompts
from pytest_vllm_gates.session import redaction, replay
from pytest_vllm_gates.session.items import NO_COMBINATION
from pytest_vllm_gates.session.run import Replays, Run, Subject
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.features.catalog import Combination
    from pytest_vllm_gates.machine.types import Machine
    from pytest_vllm_gates.options.table import Options

"""The package that contains vLLM, by device."""
COMBINED = ("adapters", "features")
"""Gates whose tests run once for each combination."""
SERVES = "serves_with_these_features"
"""The check that fails if a server with features does not boot or dies of a chat."""


def resolve(options: Options) -> Run:
    """Resolve lane, families and checkpoints; raises `UserError` for an unknown name."""
    machine = machine_inspect.inspect()
    project = options.rootdir
    _look_at_own_files(project)
    if options.keep_server_s:
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415 - only where it is asked

        kept_registry.open_root()
    replays = replay.resolve(options)
    lane, why = (replays.lane, "the incident's") if replays.lane else _lane(options, machine)
    if replays.repro and replays.repro.incident.measure:
        options = replace(options, **replays.repro.incident.measure.model_dump())
    if replays.repro and lane.base_url:
        # A running server is judged as the incident's lane was.
        lane = lane.model_copy(update=replays.repro.incident.lane.judging)
    today = waiving.today()
    waivers = waiving.load_all(project, verdict_gates.gate_files(), today)
    every = (
        lane_families.every_family(project, lane, options.checkpoint)
        if ALL in map(str.lower, options.models)
        else {}
    )
    names = [
        family_name
        for name in options.models
        for family_name in (
            [each for each, why in every.items() if not why] if name.lower() == ALL else [name]
        )
    ]
    subjects = [_subject(name, options, lane) for name in names]
    if replays.family:
        replayed = _replayed(replays, replays.family, options, lane)
        replayed, lane, options = replay.as_it_was(replays, replayed, lane, options)
        subjects = [replayed]
    if options.trace:
        for subject in subjects:  # an invalid trace is reported before anything boots
            traces.take(options.trace, planned_traffic(subject.family.load, lane.load))
    server_env = {}
    if options.without_repairs:
        known = [repair.name for repair in repairs(lane.overlay_path)]
        left_out = [choose("repair", name, known) for name in options.without_repairs]
        options = replace(options, without_repairs=tuple(left_out))
        server_env[WITHOUT_VARIABLE] = ",".join(left_out)
    other_lane = _other_lane(options, lane)
    if options.redact_prompts != prompts.KEEP:
        server_env[prompts.VARIABLE] = options.redact_prompts
    return Run(
        options=options,
        lane=lane,
        lane_why=why,
        subjects=tuple({subject.family.name: subject for subject in subjects}.values()),
        conversations=replays.conversations(conversations.load_all(project)),
        known_defects=known_defects.load_all(project),
        machine=machine,
        waivers=of_lane(waivers, lane.name, today),
        server_env=server_env,
        against=other_lane,
        notes=[
            *(f"--model {ALL} leaves out {name}: {why}" for name, why in every.items() if why),
            *(
                f"{subject.family.name} is known to fail: {why}"
                for subject in subjects
                if (why := lane_families.unserved(subject.family, lane))
            ),
        ],
        combinations=_with_adapters(
            _combinations(options, machine, replays, lane, [one.family for one in subjects]), lane
        ),
        store=_store(options),
        replays=replays,
        tapes={
            subject.family.name: Tape()
            for subject in subjects
            if options.incidents or options.repro
        },
        needs_weights=replay.needing_weights(replays, options),
        redactor=redaction.redactor(options, [lane, *([other_lane] if other_lane else [])]),
    )


def _look_at_own_files(project: Path) -> None:
    """Raise `UserError` for a fault in files that are read late, before anything boots."""
    if (project / signature.FOLDER).is_dir():
        signature.load_all(project)
    if (project / "forced_texts.toml").is_file():
        from pytest_vllm_gates.numerics import forced  # noqa: PLC0415 - few projects have them

        forced.load_all(project)


def _combinations(
    options: Options,
    machine: Machine,
    replays: Replays,
    lane: Lane,
    served: Iterable[Family] = (),
) -> tuple[Combination, ...]:
    """Return the combinations of --features, or that of the incident that is sent again.

    Raises `UserError` for an unknown one.
    """
    text = options.features
    if replays.repro and replays.repro.incident.gate in COMBINED:
        parameters = replays.repro.incident.test.partition("[")[2].removesuffix("]")
        text = parameters.removeprefix(f"{replays.repro.incident.family}-")
    if not text or text == NO_COMBINATION:
        return ()
    return feature_catalog.chosen(
        text,
        feature_catalog.load(),
        gpus=bool(machine.gpus),
        serve=lane.serve,
        env=lane.env,
        apart=_known_to_die(served, lane),
    )


def _known_to_die(served: Iterable[Family], lane: Lane) -> frozenset[str]:
    """Return the features that are known not to serve by themselves on the lane's release."""
    return frozenset(
        feature
        for family in served
        for defect in family.known_defects
        if defect.check == SERVES
        and known_defects.contains(defect.versions, lane_families.vllm(lane)[1])
        for feature in (defect.when if len(defect.when) == 1 else ())
    )


def _with_adapters(combinations: tuple[Combination, ...], lane: Lane) -> tuple[Combination, ...]:
    """Return the combinations; raises `UserError` for an invalid adapter of the lane."""
    if any(combination.adapters for combination in combinations):
        for name, path in lane.lora_modules.items():
            adapter_files.read(name, lane.file.parent / path)
    return combinations


def _store(options: Options) -> Path | None:
    """Open the store of --gates-store; raises `UserError` if it cannot be read."""
    if options.store is None:
        return None
    from pytest_vllm_gates.gates_store import store  # noqa: PLC0415 - few runs have one

    return store.opened(options.store)


def _other_lane(options: Options, lane: Lane) -> Lane | None:
    """Return the lane of --against; raises `UserError` if either lane needs an unset variable."""
    other = lanes.load(options.against, options.rootdir) if options.against else None
    for running_lane in (lane, other):
        if running_lane and running_lane.base_url:
            endpoint.of_lane(running_lane, os.environ, options.api_key_env)
    return other


def _replayed(replays: Replays, family: Family, options: Options, lane: Lane) -> Subject:
    """Return the family of an incident, with its checkpoint if that is known."""
    if replays.checkpoint:
        return Subject(family, replays.checkpoint, " (the incident's)")
    return _subject(family.name, options, lane)


def _subject(name: str, options: Options, lane: Lane) -> Subject:
    """Find the family of a name, or of a checkpoint that was named in its place."""
    family, source, _ = named.family(name, options.rootdir)
    if lane.base_url and not (source or options.checkpoint or lane.checkpoint):
        server = endpoint.of_lane(lane, os.environ, options.api_key_env)
        return Subject(family, checkpoints_resolve.served(family, server))
    return Subject(*named.served(name, options.checkpoint, lane, options.rootdir))


def _lane(options: Options, machine: Machine) -> tuple[Lane, str]:
    project = options.rootdir
    if options.base_url:
        lane = lanes.Lane(
            name=lanes.ATTACHED, file=project, title="a running server", base_url=options.base_url
        )
        return lane, f"requested with {spelling.name(options, 'base_url')}"
    return named.lane(options.lane, project, machine)
