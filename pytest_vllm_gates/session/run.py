"""The state of one run: its settled options, and its results so far."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.environment import bundle
from pytest_vllm_gates.environment.overlay import Repair, repairs
from pytest_vllm_gates.incidents.types import EXPECTED
from pytest_vllm_gates.report import incidents as report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.known_defects import KnownDefect
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.catalog.waivers import Waivers
    from pytest_vllm_gates.client.tape import Tape
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.features.catalog import Combination
    from pytest_vllm_gates.incidents.read import IncidentFolder
    from pytest_vllm_gates.machine.types import Machine
    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.outcomes import TestResult
    from pytest_vllm_gates.redaction.redactor import Redactor
    from pytest_vllm_gates.server.types import Boot, Failure

LABEL = re.compile(r"[^\w.-]+")
MeasuredT = TypeVar("MeasuredT")


class Measured:
    """What one test measured of a family's server, for all tests that look at it."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], Any] = {}
        self._begun: dict[tuple[str, str], Future[Any]] = {}

    def once(self, family: str, what: str, measure: Callable[[], MeasuredT]) -> MeasuredT:
        """Return what was measured under this name; call `measure` if nothing was yet.

        What was begun is waited for, and raises what it raised.
        """
        key = (family, what)
        if key not in self._values:
            begun = self._begun.pop(key, None)
            self._values[key] = begun.result() if begun else measure()
        value: MeasuredT = self._values[key]
        return value

    def has(self, family: str, what: str) -> bool:
        """Return whether it was measured or begun."""
        return (family, what) in self._values or (family, what) in self._begun

    def begin(self, family: str, what: str, measure: Callable[[], object]) -> None:
        """Call `measure` in a thread of its own; `once` waits for it and returns its value."""
        future = self._begun[family, what] = Future[Any]()

        def run() -> None:
            try:
                future.set_result(measure())
            except BaseException as error:  # noqa: BLE001 - raised where it is asked for
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()

    def clear(self) -> None:
        """Have everything measured anew."""
        self._values.clear()
        self._begun.clear()


@dataclass(frozen=True)
class Attempt:
    """One time that an incident is sent again; tests are run for it as for a parameter."""

    incident_folder: IncidentFolder
    number: int | None = None
    """Which time it is, where there are several."""
    fresh: bool = False
    """Whether nothing that another test was told may be taken for its own."""

    @property
    def label(self) -> str:
        """What stands for it in a test's name."""
        label = LABEL.sub("-", self.incident_folder.name)
        return f"{label}-{self.number}" if self.number else label

    def expected(self, checkpoint: str) -> Path | None:
        """Return the folder of the incident's goldens, where they are of this checkpoint."""
        same = self.incident_folder.incident.checkpoint.name == checkpoint
        return self.incident_folder.folder / EXPECTED if same else None


@dataclass
class Replays:
    """What is sent again, and what came of it."""

    repro: IncidentFolder | None = None
    times: int = 1
    kept: tuple[IncidentFolder, ...] = ()
    """Those that have been made tests."""
    refused: tuple[str, ...] = ()
    """Why others were not read."""
    family: Family | None = None
    checkpoint: Checkpoint | None = None
    lane: Lane | None = None
    """Those of `repro`, where it says which; the lane is None where the run is to choose."""
    notes: tuple[str, ...] = ()
    """What is said of where `repro` is replayed."""
    other_weights: bool = False
    """Whether `repro` is replayed with other weights than its own."""
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """The outcome of each attempt: the records of `session.replay.attempt_record`."""

    @property
    def any_kept(self) -> bool:
        """Whether any incident was made a test, be it one that cannot be read."""
        return bool(self.kept or self.refused)

    def conversations(self, known: Sequence[Conversation]) -> tuple[Conversation, ...]:
        """Return the conversations of the run: that of the incident of --repro is as it was."""
        recorded = self.repro.incident.conversation if self.repro else None
        if not recorded:
            return tuple(known)
        own = Conversation.model_validate_json(json.dumps(recorded))
        return tuple(
            {**{conversation.name: conversation for conversation in known}, own.name: own}.values()
        )

    def document(self) -> dict[str, Any] | None:
        """Return what the replay of --repro came to, as verdict.json has it; None without one."""
        if self.repro is None:
            return None
        return report.document(self.repro.folder, self.repro.incident, self.attempts, self.notes)

    def attempts_of(self, gate: str, test: str) -> list[Attempt]:
        """Return how often a gate's test is to be run for an incident, and for which."""
        attempts = [
            Attempt(incident_folder)
            for incident_folder in self.kept
            if (incident_folder.incident.gate, _function(incident_folder)) == (gate, test)
        ]
        folder = self.repro
        if folder and (folder.incident.gate, _function(folder)) == (gate, test):
            numbers = range(1, self.times + 1) if self.times > 1 else [None]
            attempts += [Attempt(folder, number, fresh=True) for number in numbers]
        return attempts


def _function(incident_folder: IncidentFolder) -> str:
    return incident_folder.incident.test.partition("[")[0]


@dataclass(frozen=True)
class OtherRun:
    """What came of the other lane's run: its `verdict.json`, or why there is none."""

    folder: Path
    document: dict[str, Any] | None
    problem: str = ""


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
    measured: Measured = field(default_factory=Measured)
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
    combinations: tuple[Combination, ...] = ()
    """The features that a family is booted with once more, together."""
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
    scratch: Path | None = None
    """Where the servers' logs go when the report's folder cannot be written."""
    incidents_lost: dict[str, list[str]] = field(default_factory=dict)
    """The tests of which no incident could be written, by the reason."""
    incidents: list[dict[str, str]] = field(default_factory=list)
    """Family, gate and test of every failure that left an incident, and its path."""
    store: Path | None = None
    """The folder of goldens and baselines that lie under the project's own; it is only read."""
    replays: Replays = field(default_factory=Replays)
    """The incidents that are sent again."""
    needs_weights: set[str] = field(default_factory=set)
    """Families of which a test was collected that a renderer alone cannot serve."""
    all_reduced: dict[int, AllReduceResult] = field(default_factory=dict)
    """What came of the all-reduce over so many ranks; it is tried once a run."""

    @property
    def device(self) -> str | None:
        """What the lane's build of vLLM serves on; None where that is not known."""
        if self.environment is None:
            return None
        return bundle.serves_on(self.environment.folders, self.environment.versions)[0]

    @property
    def overlay(self) -> Path | None:
        """The overlay folder the servers of this run get, if any."""
        return self.lane.overlay_path if self.options.overlay else None

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What the overlay of this run repairs."""
        left_out = self.options.without_repairs
        return tuple(repair for repair in repairs(self.overlay) if repair.name not in left_out)

    def renderer_is_enough(self, subject: Subject) -> bool:
        """Return whether no test of this run needs the weights, and the lane can do without."""
        return (
            self.lane.start.renderer is not None
            and self.lane.form in ("lock", "python")
            and subject.family.name not in self.needs_weights
        )

    def of(self, lane: Lane) -> Run:
        """Return the same run on another lane, with nothing booted yet."""
        return replace(
            self,
            lane=lane,
            environment=None,
            inventory={},
            versions={},
            boots={},
            measured=Measured(),
            all_reduced={},
            tapes={},
        )


@dataclass(frozen=True)
class AllReduceResult:
    """What an all-reduce came to, as JSON; with the failure that forbids to boot."""

    document: dict[str, Any]
    failure: Failure | None = None
