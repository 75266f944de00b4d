"""The format of an incident, and the rules for its replay from `replay.toml`.

An incident is a folder with `incident.json`, which these records describe, and the files it lists.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.catalog.matrix import ConversationRule

FORMAT: Final = "pytest-vllm-gates/incident"
VERSION: Final = 1
NAME = "incident.json"
SCHEMA = Path(__file__).with_name("incident.schema.json")
LOG = "log.txt.gz"
EXCERPT = "log-excerpt.txt"
METRICS_BEFORE = "metrics-before.txt"
METRICS_AFTER = "metrics-after.txt"
LANE = "lane.toml"
EXPECTED = "expected"
PROMPT_FILES = "prompt_files"
CAPTURED = "captured"
"""The gate of requests that were seen elsewhere: it judges what an incident expects of them."""

# Every file that an incident may hold besides incident.json. All are data; none is ever executed.
LAYOUT = re.compile(
    r"requests/[0-9]{1,5}\.json|responses/[0-9]{1,5}\.jsonl|log\.txt\.gz|log-excerpt\.txt"
    r"|metrics-(?:before|after)\.txt|lane\.toml|expected/[\w.-]{1,120}\.txt"
    r"|prompt_files/(?:[\w-]{1,60}\.(?:jinja|json|txt|model))"
)


class ReplayOutcome(StrEnum):
    """What a replay comes to."""

    REPRODUCED = "REPRODUCED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    DIFFERENT = "DIFFERENT"
    NOT_MET = "NOT MET"
    """No answer was recorded, and an expectation is not met here."""
    NOT_JUDGED = "NOT JUDGED"
    """A captured request was not answered by the model: the key was refused, for example."""


class IncidentRecord(toml.Record):
    """A table of incident.json; what each field is stands in its schema."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Send(IncidentRecord):
    """One request that was sent, and what came back."""

    name: str
    """Unlike every other send's."""
    method: str
    path: str
    """With its query, below the server's root: `/v1/chat/completions`."""
    headers: dict[str, str]
    """Those that may hold a secret have their values redacted."""
    body: str | None
    """The file with the exact bytes of the body."""
    response: str | None
    """The file with the response as it arrived."""
    status: int | None
    """The HTTP status; null where no response began."""
    error: str = ""
    """What ended the exchange, where it was not the end of the response."""


class RecordedFinding(IncidentRecord):
    """One thing that the test found wrong."""

    case: str
    says: str


class CellSends(IncidentRecord):
    """One cell of the matrix: how it was asked, by the names of its sends."""

    cell: dict[str, str]
    """The cell's value of every dimension of the matrix."""
    asked: ConversationRule
    """What asked for it: an entry of the matrix."""
    thinks: bool
    """Whether the model was to think."""
    whole: str
    streamed: str | None = None
    """With null the request of `whole` is streamed."""
    widened: str | None = None
    """The same in wide deltas."""
    unstopped: str | None = None
    """The send of the same request without its stop, where the cell has one."""
    stop: str | int | None = None
    """The stop string, or the id of the stop token."""


class RecordedWalk(IncidentRecord):
    """What judging a test of the matrix needs."""

    max_tokens: int
    cells: tuple[CellSends, ...]


class ServedLane(IncidentRecord):
    """The lane that served."""

    name: str
    title: str
    form: str
    """`python`, `lock`, `command` or `base_url`."""
    base_url: str | None = None
    env: dict[str, str]
    """Those that may hold a secret have their values redacted."""
    serve: dict[str, Any]
    overlay: tuple[str, ...]
    """The repairs that were on the server's import path, by name and summary."""
    batch_invariant: bool = False
    load: dict[str, Any] = Field(default_factory=dict)
    """What the load gate was to send and ask for there, as a lane's file has it."""
    throughput: dict[str, Any] = Field(default_factory=dict)
    """How throughput was to be measured there, as a lane's file has it."""

    @property
    def judging(self) -> dict[str, Any]:
        """What of it says how a server is judged, whatever serves."""
        return {
            "batch_invariant": self.batch_invariant,
            "load": self.load,
            "throughput": self.throughput,
        }


class Measure(IncidentRecord):
    """How much the gates were told to ask: options of the run that change what is sent."""

    answer_tokens: int = Field(ge=0)
    samples: int = Field(ge=0)
    soak_s: float = Field(default=0.0, ge=0)
    ramp: bool = False


class ServedCheckpoint(IncidentRecord):
    """The weights that were served."""

    name: str
    source: str
    revision: str | None


class File(IncidentRecord):
    """A file of the incident."""

    sha256: str
    bytes: int = Field(ge=0)


class Incident(IncidentRecord):
    """What `incident.json` holds. Paths are relative to the incident's folder."""

    format: Literal["pytest-vllm-gates/incident"] = FORMAT
    version: Literal[1] = VERSION
    created: str
    """ISO 8601, with the offset."""
    tool: dict[str, str]
    """Name and version of what wrote it."""
    family: str
    model: str
    """The name under which the family was served: the body's `model`."""
    checkpoint: ServedCheckpoint
    lane: ServedLane
    flags: dict[str, Any] | None = None
    """The flags that the server was started with, of family, checkpoint and lane together; null
    where nothing was booted."""
    variables: dict[str, str] | None = None
    """The variables of vLLM's own that the server had, the lane's and those of the shell, as far as
    `replay.toml` lists them; null where nothing was booted."""
    renderer: bool | None = None
    """Whether vLLM's renderer alone served, without weights; null where nothing was booted."""
    trace: str | None = None
    """The name of the file that the load gate replayed (`--load-trace`)."""
    measure: Measure | None = None
    """Null for what no run of the gates has seen."""
    gate: str
    test: str
    """The test as pytest calls it: `test_name[parameters]`."""
    case: str | None = None
    """The first case that was wrong, where the test looks at several."""
    says: str
    """The expectation that failed."""
    findings: tuple[RecordedFinding, ...] = ()
    signature: dict[str, Any] | None = None
    """How a death or a failed boot is explained, as in verdict.json; null where nothing died."""
    machine: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    inventory: dict[str, Any] = Field(default_factory=dict)
    seeds: dict[str, int] = Field(default_factory=dict)
    """The seeds in use, by what they are for."""
    sends: tuple[Send, ...] = ()
    """In the order in which they were sent."""
    walk: RecordedWalk | None = None
    """Given for a test that judges the walk of the matrix: these cells are the walk."""
    conversation: dict[str, Any] | None = None
    """The conversation of a test that is run for one of them, with its name."""
    cut: tuple[str, ...] = ()
    """What was too large to be kept whole, and how much of it was."""
    command: str
    """What sends it again, typed in the project's root; of a captured request, and of an incident
    that was written outside of the project, where the incident's folder lies."""
    files: dict[str, File] = Field(default_factory=dict)
    """Every other file of the incident."""
    sha256: str = ""
    """Of this file's JSON without this key: sorted keys, no spaces, UTF-8."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of incident.json, which lies in `SCHEMA`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:pytest-vllm-gates:incident:1",
        **Incident.model_json_schema(mode="serialization"),
    }


SHIPPED = data.FOLDER / "replay.toml"


class ValueRule(toml.Record):
    """The values that an incident may give one flag or variable."""

    kind: Literal["switch", "integer", "number", "word", "pattern"]
    """`word` has no `/`, no `.` and no leading `-`; a list or a table is never allowed."""
    least: float = 0
    most: float = 0
    words: tuple[str, ...] = ()
    """The only words, where they are known."""
    pattern: str = ""


class LaneRules(toml.Record):
    """What the lane of an incident may set: names, each with the values that it may have."""

    serve: dict[str, ValueRule]
    env: dict[str, ValueRule]


class RouteRules(toml.Record):
    """The requests of an incident that are sent again, by method; paths below the root."""

    get: tuple[str, ...]
    post: tuple[str, ...]


class Rules(toml.Record):
    """The file."""

    above_the_weights: tuple[str, ...]
    without_weights: tuple[str, ...]
    lane: LaneRules
    routes: RouteRules


def load() -> Rules:
    """Read the shipped rules."""
    return toml.load(SHIPPED, Rules)
