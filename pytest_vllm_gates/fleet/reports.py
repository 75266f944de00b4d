"""The files of a shard: its report, and the record of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_vllm_gates.bounded import limits, read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.report import document as verdict_document

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_vllm_gates.fleet.shards import FleetPlan, Shard

RECORD = "shard.json"
FORMAT: Literal["pytest-vllm-gates/shard"] = "pytest-vllm-gates/shard"


class ShardRecord(BaseModel):
    """The file `shard.json` beside a shard's verdict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["pytest-vllm-gates/shard"]
    version: Literal[1]
    plan: str
    """The plan's digest."""
    suite: str
    shard: str


class _Read(BaseModel):
    """A part of `verdict.json`; its other keys are not read here."""

    model_config = ConfigDict(frozen=True)


class _Test(_Read):
    test: str
    outcome: Outcome
    reason: str
    cause: str = ""
    evidence: dict[str, Any]


class _Gate(_Read):
    gate: str
    outcome: str
    reason: str
    tests: tuple[_Test, ...]


class _Family(_Read):
    name: str
    gates: tuple[_Gate, ...]


class _Lane(_Read):
    name: str
    versions: dict[str, str]
    serve: dict[str, Any]


class _Tool(_Read):
    version: str


class ShardVerdict(_Read):
    """The parts of a shard's `verdict.json` that a fleet reads."""

    format: Literal["pytest-vllm-gates/verdict"]
    version: Literal[1]
    tool: _Tool
    created: str
    lane: _Lane
    families: tuple[_Family, ...]

    def results(self) -> list[TestResult]:
        """Return the results of all its tests."""
        return [
            TestResult(
                family.name, gate.gate, test.test, test.outcome, test.reason,
                cause=test.cause, evidence=test.evidence,
            )
            for family in self.families
            for gate in family.gates
            for test in gate.tests
        ]  # fmt: skip


@dataclass(frozen=True)
class ShardReport:
    """A folder with a verdict in it."""

    folder: Path
    record: ShardRecord | None
    """None if the run was not a shard."""
    verdict: ShardVerdict


def begin(folder: Path, plan: FleetPlan, shard: Shard) -> None:
    """Record the shard of a folder, and remove an older verdict. Raises `WriteError`."""
    (folder / verdict_document.NAME).unlink(missing_ok=True)
    record = ShardRecord(
        format=FORMAT, version=1, plan=plan.digest, suite=plan.suite, shard=shard.name
    )
    write_whole(folder / RECORD, record.model_dump_json(indent=1) + "\n")


def read(folders: Iterable[Path]) -> list[ShardReport]:
    """Return every report in and below these folders, in the order of their paths.

    A report within another report belongs to the lane of its comparison, and is left out.

    Raises `UserError` for a missing folder, and for a file whose content does not match its name.
    """
    reports = []
    for top in folders:
        if not top.is_dir():
            raise UserError(f"{top}: no such folder\nname the folder with the shards' reports")
        for file in sorted(top.rglob(verdict_document.NAME)):
            folder = file.parent
            if folder != top and (folder.parent / verdict_document.NAME).is_file():
                continue
            reports.append(ShardReport(folder, _record(folder / RECORD), _verdict(file)))
    return reports


def _record(path: Path) -> ShardRecord | None:
    if not path.exists():
        return None
    try:
        return ShardRecord.model_validate(bounded_read.json_object(path, unique=True))
    except (FileError, ValidationError) as error:
        raise UserError(f"{path}: not a record of a shard: {_first_line(error)}") from error


def _verdict(path: Path) -> ShardVerdict:
    try:
        return ShardVerdict.model_validate_json(bounded_read.data(path, limits.JSON_BYTES))
    except (FileError, ValidationError) as error:
        raise UserError(
            f"{path}: not a verdict of these gates: {_first_line(error)}\n"
            "run its shard again, or remove the folder"
        ) from error


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error).partition("\n")[0]
