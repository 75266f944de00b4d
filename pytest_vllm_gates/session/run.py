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
    """Measurements of a family's server, shared by all tests that use them."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], Any] = {}
        self._begun: dict[tuple[str, str], Future[Any]] = {}

    def once(self, family: str, what: str, measure: Callable[[], MeasuredT]) -> MeasuredT:
        """Return the measurement of this name; call `measure` if there is none yet.

        A measurement in progress is waited for, and its error is raised.
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
        """Call `measure` in a separate thread; `once` waits for it and returns its value."""
        future = self._begun[family, what] = Future[Any]()

        def run() -> None:
            try:
                future.set_result(measure())
            except BaseException as error:  # noqa: BLE001 - raised where it is asked for
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()

    def clear(self) -> None:
        """Discard all measurements."""
        self._values.clear()
        self._begun.clear()


@dataclass(frozen=True)
class Attempt:
    """One replay of an incident; tests are run for it as for a parameter."""

    incident_folder: IncidentFolder
    number: int | None = None
    """The number of the replay, if there are several."""
    fresh: bool = False
    """Whether the answers of other tests may not be reused."""

    @property
    def label(self) -> str:
        """The name of the replay in a test's name."""
        label = LABEL.sub("-", self.incident_folder.name)
        return f"{label}-{self.number}" if self.number else label

    def expected(self, checkpoint: str) -> Path | None:
        """Return the folder of the incident's goldens, if they are of this checkpoint."""
        same = self.incident_folder.incident.checkpoint.name == checkpoint
        return self.incident_folder.folder / EXPECTED if same else None


@dataclass
class Replays:
    """The incidents that are sent again, and their results."""

    repro: IncidentFolder | None = None
    times: int = 1
    kept: tuple[IncidentFolder, ...] = ()
    """Incidents that have been made tests."""
    refused: tuple[str, ...] = ()
    """Why others were not read."""
    family: Family | None = None
    checkpoint: Checkpoint | None = None
    lane: Lane | None = None
    """Those of `repro`, if it names them; the lane is None if the run is to choose."""
    notes: tuple[str, ...] = ()
    """Notes on the server to which `repro` is sent."""
    other_weights: bool = False
    """Whether `repro` is replayed with other weights than its own."""
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """The outcome of each attempt: the records of `session.replay.attempt_record`."""

    @property
    def any_kept(self) -> bool:
        """Whether any incident was made a test, even one that cannot be read."""
        return bool(self.kept or self.refused)

    def conversations(self, known: Sequence[Conversation]) -> tuple[Conversation, ...]:
        """Return the conversations of the run: that of the incident of --repro is unchanged."""
        recorded = self.repro.incident.conversation if self.repro else None
        if not recorded:
            return tuple(known)
        own = Conversation.model_validate_json(json.dumps(recorded))
        return tuple(
            {**{conversation.name: conversation for conversation in known}, own.name: own}.values()
        )

    def document(self) -> dict[str, Any] | None:
        """Return the result of the replay of --repro for verdict.json; None without one."""
        if self.repro is None:
            return None
        return report.document(self.repro.folder, self.repro.incident, self.attempts, self.notes)

    def attempts_of(self, gate: str, test: str) -> list[Attempt]:
        """Return the incidents for which a gate's test is to be run, and how often."""
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
    """The result of the other lane's run: its `verdict.json`, or why there is none."""

    folder: Path
    document: dict[str, Any] | None
    problem: str = ""


@dataclass(frozen=True)
class Subject:
    """One family with the checkpoint by which it is judged."""

    family: Family
    checkpoint: Checkpoint
    why: str = ""
    """How the family was found, if it was not named."""


@dataclass
class Run:
    """The state of a run. The options are settled before collection, the rest fills up."""

    options: Options
    lane: Lane
    lane_why: str
    subjects: tuple[Subject, ...]
    conversations: tuple[Conversation, ...]
    redactor: Redactor
    """Hides the secrets of this run in all its output."""
    known_defects: tuple[KnownDefect, ...]
    """Those of every family; a family file lists its own."""
    machine: Machine
    waivers: Waivers
    environment: Environment | None = None
    inventory: dict[str, Any] = field(default_factory=dict)
    """The contents of the lane's environment, once it was inspected."""
    versions: dict[str, str] = field(default_factory=dict)
    """Every package of the lane's environment with its version, once it is known."""
    server_env: dict[str, str] = field(default_factory=dict)
    """Variables of this process's servers besides their lane's environment."""
    boots: dict[str, Boot] = field(default_factory=dict)
    measured: Measured = field(default_factory=Measured)
    results: list[TestResult] = field(default_factory=list)
    recorded: dict[Path, str] = field(default_factory=dict)
    baselines: list[Path] = field(default_factory=list)
    """The baselines that were recorded."""
    notes: list[str] = field(default_factory=list)
    """Lines for the end of the run, besides the verdict."""
    goldens_used: set[Path] = field(default_factory=set)
    collected: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)
    """The gate of each test that was deselected, by the test's id."""
    finished: set[str] = field(default_factory=set)
    interrupted: bool = False
    combinations: tuple[Combination, ...] = ()
    """The features with which a family is booted again, together."""
    against: Lane | None = None
    """The lane with which this one is compared."""
    other: OtherRun | None = None
    """The result of the gates on that lane, once they ran."""
    tapes: dict[str, Tape] = field(default_factory=dict)
    """The requests to each family's server, and the answers."""
    metrics: dict[str, str] = field(default_factory=dict)
    """The metrics of each family's server once it had booted."""
    incidents_left: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many incidents each gate of a family has left behind."""
    scratch: Path | None = None
    """The folder of the servers' logs if the report's folder cannot be written."""
    incidents_lost: dict[str, list[str]] = field(default_factory=dict)
    """The tests without an incident because it could not be written, by the reason."""
    incidents: list[dict[str, str]] = field(default_factory=list)
    """Family, gate and test of every failure that left an incident, and its path."""
    store: Path | None = None
    """The folder of goldens and baselines that lie under the project's own; it is only read."""
    replays: Replays = field(default_factory=Replays)
    """The incidents that are sent again."""
    needs_weights: set[str] = field(default_factory=set)
    """Families with a collected test that a renderer alone cannot serve."""
    all_reduced: dict[int, AllReduceResult] = field(default_factory=dict)
    """The result of the all-reduce by the number of ranks; it is tried once a run."""

    @property
    def device(self) -> str | None:
        """The device of the lane's build of vLLM; None if it is not known."""
        if self.environment is None:
            return None
        return bundle.serves_on(self.environment.folders, self.environment.versions)[0]

    @property
    def overlay(self) -> Path | None:
        """The overlay folder of this run's servers, if any."""
        return self.lane.overlay_path if self.options.overlay else None

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs of this run's overlay."""
        left_out = self.options.without_repairs
        return tuple(repair for repair in repairs(self.overlay) if repair.name not in left_out)

    def renderer_is_enough(self, subject: Subject) -> bool:
        """Return whether no test of this run needs the weights, and the lane permits it."""
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
    """The result of an all-reduce, as JSON; with the failure that prevents a boot."""

    document: dict[str, Any]
    failure: Failure | None = None
