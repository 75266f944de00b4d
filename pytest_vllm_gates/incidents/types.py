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
"""The gate for requests captured elsewhere: it judges the incident's expectations of them."""

# Every file that an incident may have besides incident.json. All are data; none is ever executed.
LAYOUT = re.compile(
    r"requests/[0-9]{1,5}\.json|responses/[0-9]{1,5}\.jsonl|log\.txt\.gz|log-excerpt\.txt"
    r"|metrics-(?:before|after)\.txt|lane\.toml|expected/[\w.-]{1,120}\.txt"
    r"|prompt_files/(?:[\w-]{1,60}\.(?:jinja|json|txt|model))"
)


class ReplayOutcome(StrEnum):
    """The outcome of a replay."""

    REPRODUCED = "REPRODUCED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    DIFFERENT = "DIFFERENT"
    NOT_MET = "NOT MET"
    """No answer was recorded, and an expectation is not met here."""
    NOT_JUDGED = "NOT JUDGED"
    """The model did not answer a captured request: the key was refused, for example."""


class IncidentRecord(toml.Record):
    """A table of incident.json; its schema describes each field."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Send(IncidentRecord):
    """One request that was sent, and its response."""

    name: str
    """Unique among the sends."""
    method: str
    path: str
    """Below the server's root, with the query: `/v1/chat/completions`."""
    headers: dict[str, str]
    """Values that may contain a secret are redacted."""
    body: str | None
    """The file with the exact bytes of the body."""
    response: str | None
    """The file with the response as it arrived."""
    status: int | None
    """The HTTP status; null if no response began."""
    error: str = ""
    """The error that ended the exchange before the end of the response."""


class RecordedFinding(IncidentRecord):
    """One thing that the test found wrong."""

    case: str
    says: str


class CellSends(IncidentRecord):
    """One cell of the matrix: the names of its sends."""

    cell: dict[str, str]
    """The cell's value in every dimension of the matrix."""
    asked: ConversationRule
    """The entry of the matrix that requires this cell."""
    thinks: bool
    """Whether the request enabled thinking."""
    whole: str
    streamed: str | None = None
    """If null, the request of `whole` is streamed."""
    widened: str | None = None
    """The same in wide deltas."""
    unstopped: str | None = None
    """The send of the same request without its stop, if the cell has one."""
    stop: str | int | None = None
    """The stop string, or the id of the stop token."""


class RecordedWalk(IncidentRecord):
    """The data that judging a test of the matrix needs."""

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
    """Values that may contain a secret are redacted."""
    serve: dict[str, Any]
    overlay: tuple[str, ...]
    """The repairs that were on the server's import path, by name and summary."""
    batch_invariant: bool = False
    load: dict[str, Any] = Field(default_factory=dict)
    """The settings of the load gate, as in a lane's file."""
    throughput: dict[str, Any] = Field(default_factory=dict)
    """The settings of the throughput measurement, as in a lane's file."""

    @property
    def judging(self) -> dict[str, Any]:
        """The settings that define how a server is judged; they do not depend on the server."""
        return {
            "batch_invariant": self.batch_invariant,
            "load": self.load,
            "throughput": self.throughput,
        }


class Measure(IncidentRecord):
    """How many requests the gates send, and how long: the run's options that change requests."""

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
    """The contents of `incident.json`. Paths are relative to the incident's folder."""

    format: Literal["pytest-vllm-gates/incident"] = FORMAT
    version: Literal[1] = VERSION
    created: str
    """ISO 8601, with the offset."""
    tool: dict[str, str]
    """Name and version of the tool that wrote it."""
    family: str
    model: str
    """The name under which the family was served: the body's `model`."""
    checkpoint: ServedCheckpoint
    lane: ServedLane
    flags: dict[str, Any] | None = None
    """The flags that the server was started with: family, checkpoint and lane together; null if
    nothing was booted."""
    variables: dict[str, str] | None = None
    """The server's vLLM variables, from the lane and the shell, as far as `replay.toml` lists them;
    null if nothing was booted."""
    renderer: bool | None = None
    """Whether only vLLM's renderer served, without weights; null if nothing was booted."""
    trace: str | None = None
    """The name of the file that the load gate replayed (`--load-trace`)."""
    measure: Measure | None = None
    """Null if the incident does not come from a run of the gates."""
    gate: str
    test: str
    """The test's name in pytest: `test_name[parameters]`."""
    case: str | None = None
    """The first case that failed, if the test checks several."""
    says: str
    """The expectation that failed."""
    findings: tuple[RecordedFinding, ...] = ()
    signature: dict[str, Any] | None = None
    """The explanation of a death or a failed boot, as in verdict.json; null if nothing died."""
    machine: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    inventory: dict[str, Any] = Field(default_factory=dict)
    seeds: dict[str, int] = Field(default_factory=dict)
    """The seeds in use, by their purpose."""
    sends: tuple[Send, ...] = ()
    """In the order of sending."""
    walk: RecordedWalk | None = None
    """The cells of the walk, for a test that judges the walk of the matrix."""
    conversation: dict[str, Any] | None = None
    """The conversation, with its name, of a test that runs once for each conversation."""
    cut: tuple[str, ...] = ()
    """Notes on the parts that were too large to be stored whole, and how much is missing."""
    command: str
    """The command that replays it, run in the project's root. A captured request, or an incident
    that was written outside the project, is replayed in the parent of the incident's folder."""
    files: dict[str, File] = Field(default_factory=dict)
    """All other files of the incident."""
    sha256: str = ""
    """The digest of this file's JSON without this key: sorted keys, no spaces, UTF-8."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of incident.json, which is stored in `SCHEMA`."""
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
    """The allowed words, if they are known."""
    pattern: str = ""


class LaneRules(toml.Record):
    """The settings that an incident's lane may have: names, each with its allowed values."""

    serve: dict[str, ValueRule]
    env: dict[str, ValueRule]


class RouteRules(toml.Record):
    """The requests of an incident that a replay sends, by method; paths below the root."""

    get: tuple[str, ...]
    post: tuple[str, ...]


class Rules(toml.Record):
    """The contents of `replay.toml`."""

    above_the_weights: tuple[str, ...]
    without_weights: tuple[str, ...]
    lane: LaneRules
    routes: RouteRules


def load() -> Rules:
    """Read the shipped rules."""
    return toml.load(SHIPPED, Rules)
