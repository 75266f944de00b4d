"""One run: what was asked, what it was resolved to, and what came of it so far."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import again, ranks, redacting
from pytest_vllm_gates.drive import checkpoints, machine, traces
from pytest_vllm_gates.drive.overlay import WITHOUT_VARIABLE, Repair, repairs
from pytest_vllm_gates.facts import conversation as conversations
from pytest_vllm_gates.facts import family as families
from pytest_vllm_gates.facts import known_defects, prompts, signature
from pytest_vllm_gates.facts import lane as lanes
from pytest_vllm_gates.facts import waivers as waiving
from pytest_vllm_gates.facts.errors import UserError
from pytest_vllm_gates.facts.launch import Boot, Failure
from pytest_vllm_gates.facts.names import choose
from pytest_vllm_gates.facts.tape import BOOT, Tape
from pytest_vllm_gates.facts.traffic import planned
from pytest_vllm_gates.judge.waivers import of_lane
from pytest_vllm_gates.options import ALL
from pytest_vllm_gates.replays import Replays
from pytest_vllm_gates.replays import resolve as resolve_replays
from pytest_vllm_gates.report.document import Facts
from pytest_vllm_gates.titles import titles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.drive.environment import Environment
    from pytest_vllm_gates.drive.launch import Server
    from pytest_vllm_gates.facts.checkpoint import Checkpoint
    from pytest_vllm_gates.facts.conversation import Conversation
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.known_defects import KnownDefect
    from pytest_vllm_gates.facts.lane import Lane
    from pytest_vllm_gates.facts.machine import Machine
    from pytest_vllm_gates.facts.outcome import TestResult
    from pytest_vllm_gates.facts.secrets import Redactor
    from pytest_vllm_gates.judge.waivers import Waivers
    from pytest_vllm_gates.options import Options
    from pytest_vllm_gates.other_lane import OtherRun

GATES = Path(__file__).parent / "gates"


@dataclass(frozen=True)
class Subject:
    """One family with the checkpoint it is judged by."""

    family: Family
    checkpoint: Checkpoint
    why: str = ""
    """How the family was found, where it was not named."""


@dataclass
class Run:
    """The state of a run. What was given is settled before collection, the rest fills up."""

    options: Options
    lane: Lane
    lane_why: str
    subjects: tuple[Subject, ...]
    conversations: tuple[Conversation, ...]
    redactor: Redactor
    """What hides the secrets of this run wherever it writes."""
    known_defects: tuple[KnownDefect, ...]
    """Those of every family; a family file lists its own."""
    machine: Machine
    waivers: Waivers
    environment: Environment | None = None
    inventory: dict[str, Any] = field(default_factory=dict)
    """What the lane's environment brings, once it was looked into."""
    versions: dict[str, str] = field(default_factory=dict)
    """Every package of the lane's environment with its version, once it is known."""
    server_env: dict[str, str] = field(default_factory=dict)
    """What the servers of this process get besides their lane's environment."""
    boots: dict[str, Boot] = field(default_factory=dict)
    results: list[TestResult] = field(default_factory=list)
    recorded: dict[Path, str] = field(default_factory=dict)
    baselines: list[Path] = field(default_factory=list)
    """Those that were recorded."""
    notes: list[str] = field(default_factory=list)
    """What is told at the end besides the verdict."""
    goldens_used: set[Path] = field(default_factory=set)
    collected: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)
    """The gate of each test that was deselected, by the test's id."""
    finished: set[str] = field(default_factory=set)
    interrupted: bool = False
    against: Lane | None = None
    """The lane that this one is held against."""
    other: OtherRun | None = None
    """What the gates came to there, once they ran."""
    tapes: dict[str, Tape] = field(default_factory=dict)
    """What was sent to each family's server, and what came back."""
    metrics: dict[str, str] = field(default_factory=dict)
    """What each family's server told of itself once it had booted."""
    incidents_left: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many incidents each gate of a family has left behind."""
    incidents: list[dict[str, str]] = field(default_factory=list)
    """Family, gate and test of every failure that left a bundle, and its path."""
    replays: Replays = field(default_factory=Replays)
    """The incidents that are sent again."""
    needs_weights: set[str] = field(default_factory=set)
    """Families of which a test was collected that a renderer alone cannot serve."""
    all_reduced: dict[int, ranks.Tried] = field(default_factory=dict)
    """What came of the all-reduce over so many ranks; it is tried once a run."""

    @property
    def overlay(self) -> Path | None:
        """The overlay folder the servers of this run get, if any."""
        return self.lane.overlay_path if self.options.overlay else None

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What the overlay of this run repairs."""
        left_out = self.options.without_repairs
        return tuple(one for one in repairs(self.overlay) if one.name not in left_out)

    def facts(self, arguments: Sequence[object]) -> Facts:
        """Return what the report says of this run besides its verdict."""
        return Facts(
            command=["pytest", *map(str, arguments)],
            lane=self.lane,
            lane_why=self.lane_why,
            repairs=[f"{repair.name}: {repair.summary}" for repair in self.repairs],
            versions=self.versions,
            inventory=self.inventory,
            machine=self.machine,
            checkpoints={one.family.name: one.checkpoint for one in self.subjects},
            boots=self.boots,
            titles=titles(gate_files()),
            reproduce=again.commands(self, gate_files()),
            redactor=self.redactor,
        )

    def renderer_is_enough(self, subject: Subject) -> bool:
        """Return whether no test of this run needs the weights, and the lane can do without."""
        return (
            self.lane.start.renderer is not None
            and self.lane.form in ("lock", "python")
            and subject.family.name not in self.needs_weights
        )

    def boot(
        self,
        subject: Subject,
        folder: Path,
        progress: Callable[[str], None],
        on_log: Callable[[str], None] | None = None,
    ) -> tuple[Boot, Server | None]:
        """Boot a family, or attach to what runs; a failure is returned, not raised."""
        tape = self.tapes.get(subject.family.name)
        with tape.part(BOOT) if tape else contextlib.nullcontext():
            return self._boot(subject, folder, progress, on_log)

    def _boot(
        self,
        subject: Subject,
        folder: Path,
        progress: Callable[[str], None],
        on_log: Callable[[str], None] | None = None,
    ) -> tuple[Boot, Server | None]:
        from pytest_vllm_gates import booting  # noqa: PLC0415 - heavy
        from pytest_vllm_gates.drive import (  # noqa: PLC0415 - heavy
            incident_parts,
            launch,
            prompt_files,
        )

        options = self.options
        tape = self.tapes.get(subject.family.name)
        if self.lane.base_url:
            key = os.environ.get(options.api_key_env)
            boot = launch.attach(self.lane.base_url, key, options.stall_timeout_s, tape)
            server = None
        else:
            renderer = self.renderer_is_enough(subject)
            try:
                environment = self._prepare(progress)
                plan = launch.Plan(
                    family=subject.family,
                    lane=self.lane,
                    checkpoint=prompt_files.alone(subject.checkpoint)
                    if renderer
                    else subject.checkpoint,
                    python=environment.python,
                    overlay=self.overlay,
                    env=self.server_env,
                    redactor=self.redactor,
                    renderer=renderer,
                    folder=folder / subject.family.name,
                    limits=launch.Limits(options.boot_timeout_s, options.stall_timeout_s),
                    tape=tape,
                )
                boot, server = booting.boot(
                    self, subject, plan, environment, progress=progress, on_log=on_log
                )
            except UserError as error:
                boot, server = Boot(failure=Failure(str(error))), None
            boot.evidence.setdefault(booting.PREFLIGHT, [])
        self.boots[subject.family.name] = boot
        if boot.endpoint and options.incidents:
            self.metrics[subject.family.name] = incident_parts.metrics(boot.endpoint)
        return boot, server

    def of(self, lane: Lane) -> Run:
        """Return the same run on another lane, with nothing booted yet."""
        return replace(
            self,
            lane=lane,
            environment=None,
            inventory={},
            versions={},
            boots={},
            all_reduced={},
            tapes={},
        )

    def _prepare(self, progress: Callable[[str], None]) -> Environment:
        """Return the lane's environment, made first if it is missing.

        Raises `UserError` when it cannot be made.
        """
        from pytest_vllm_gates.drive import environment  # noqa: PLC0415 - heavy

        if self.environment is None:
            self.environment = environment.prepare(
                self.lane, cache=environment.default_cache(), progress=progress
            )
            self.versions.update(self.environment.versions)
        return self.environment


def resolve(options: Options) -> Run:
    """Settle lane, families and checkpoints; raises `UserError` for a name that is none."""
    here = machine.inspect()
    project = options.rootdir
    if (project / signature.FOLDER).is_dir():
        signature.load_all(project)
    if options.keep_server_s:
        from pytest_vllm_gates.drive import kept_servers  # noqa: PLC0415 - only where it is asked

        kept_servers.opened()
    replays = resolve_replays(options)
    lane, why = (replays.lane, "the incident's") if replays.lane else _lane(options, here)
    if replays.repro and replays.repro.incident.measure:
        options = replace(options, **replays.repro.incident.measure.model_dump())
    if replays.repro and lane.base_url:
        # A running server is judged as the incident's lane was.
        lane = lane.model_copy(update=replays.repro.incident.lane.judging)
    today = waiving.today()
    waivers = waiving.load_all(project, gate_files(), today)
    every = sorted(families.files(project))
    names = [one for name in options.models for one in (every if name.lower() == ALL else [name])]
    subjects = [_subject(name, options, lane) for name in names]
    if replays.family:
        subjects = [_replayed(replays, replays.family, options, lane)]
    if options.trace:
        for subject in subjects:  # a trace that cannot be replayed is told before anything boots
            traces.take(options.trace, planned(subject.family.load, lane.load))
    server_env = {}
    if options.without_repairs:
        known = [repair.name for repair in repairs(lane.overlay_path)]
        left_out = [choose("repair", name, known) for name in options.without_repairs]
        options = replace(options, without_repairs=tuple(left_out))
        server_env[WITHOUT_VARIABLE] = ",".join(left_out)
    other = lanes.load(options.against, project) if options.against else None
    if options.redact_prompts != prompts.KEEP:
        server_env[prompts.VARIABLE] = options.redact_prompts
    return Run(
        options=options,
        lane=lane,
        lane_why=why,
        subjects=tuple({one.family.name: one for one in subjects}.values()),
        conversations=replays.conversations(conversations.load_all(project)),
        known_defects=known_defects.load_all(project),
        machine=here,
        waivers=of_lane(waivers, lane.name, today),
        server_env=server_env,
        against=other,
        replays=replays,
        tapes={one.family.name: Tape() for one in subjects if options.incidents or options.repro},
        redactor=redacting.redactor(options, [lane, *([other] if other else [])]),
    )


def _replayed(replays: Replays, family: Family, options: Options, lane: Lane) -> Subject:
    """Return the family of an incident, with its checkpoint where that was settled."""
    if replays.checkpoint:
        return Subject(family, replays.checkpoint, " (the incident's)")
    return _subject(family.name, options, lane)


def _subject(name: str, options: Options, lane: Lane) -> Subject:
    """Find the family a name means, or the one a checkpoint named in its place is of."""
    project = options.rootdir
    if checkpoints.is_source(name, families.files(project)):
        family, why = checkpoints.family_of(name, project)
        return Subject(family, checkpoints.resolve(family, name), why)
    family = families.load(name, project)
    if options.base_url and not options.checkpoint:
        key = os.environ.get(options.api_key_env)
        return Subject(family, checkpoints.served(family, options.base_url, key))
    return Subject(family, checkpoints.resolve(family, options.checkpoint or lane.checkpoint))


def gate_files() -> dict[str, Path]:
    """Return the shipped gates' files by the gate's name."""
    return {path.stem.removeprefix("test_"): path for path in sorted(GATES.glob("test_*.py"))}


def _lane(options: Options, here: Machine) -> tuple[Lane, str]:
    project = options.rootdir
    if options.base_url:
        lane = lanes.Lane(
            name=lanes.ATTACHED, file=project, title="a server that runs", base_url=options.base_url
        )
        return lane, "asked for with --base-url"
    if options.lane:
        return lanes.load(options.lane, project), "asked for"
    if here.gpus:
        return lanes.load("cuda", project), f"an NVIDIA GPU answers: {here.gpus[0]}"
    return lanes.load("cpu", project), "no NVIDIA GPU answers"
