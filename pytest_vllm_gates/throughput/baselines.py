"""Baselines on disk, in pytest-benchmark's own format: whole or absent, one file a boot.

The files are `golden/baselines/<machine>/0001_<family>-<checkpoint>-<lane>.json`, numbered as in
`pytest-benchmark`, so `pytest-benchmark compare --storage golden/baselines` reads them. A block is
a round; `extra_info` has every block in full, so every verdict can be computed again.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import pytest_benchmark
from pydantic import Field, TypeAdapter, ValidationError
from pytest_benchmark.stats import Stats
from pytest_benchmark.utils import get_commit_info

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.catalog.plans import Block, Pair, Scatter
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.throughput.conditions import Calibration, Conditions, Recorded, machine_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FORMAT = 1
OURS = "vllm_gates"
BLOCKS = TypeAdapter(tuple[Block, ...])
CONDITIONS = TypeAdapter(Conditions)
VERSIONS = TypeAdapter(dict[str, str])
COUNT = TypeAdapter(Annotated[int, Field(ge=1, strict=True)])
COUNTED = (
    "took_s", "output_tokens", "ttft_s", "itl_s", "late_s", "cached", "steal", "others", "speed",
    "server_cpu_s",
)  # fmt: skip
"""Figures of a block that are never below zero."""
CALIBRATION = "calibration"


@dataclasses.dataclass(frozen=True)
class Baselines:
    """The baselines of one family, checkpoint and lane in a folder of baselines."""

    root: Path
    now: Conditions
    versions: Mapping[str, str]
    command: str
    """The command that records one."""
    store: Path | None = None
    """Another folder of baselines, read if `root` has none for these conditions."""

    @property
    def folder(self) -> Path:
        """The folder of this machine's baselines."""
        return self.root / machine_name(self.now)

    @property
    def _roots(self) -> tuple[Path, ...]:
        return (self.root, self.store) if self.store else (self.root,)

    @property
    def name(self) -> str:
        """The name of the files after their numbers."""
        model = self.now.model
        words = f"{model['family']}-{model['checkpoint']}-{self.now.lane}"
        return re.sub(r"[^A-Za-z0-9.]+", "-", words)

    def recorded(self) -> tuple[list[Recorded], list[str]]:
        """Return the boots to compare with: the recorded boots of the newest versions.

        If there are none, also returns how the newest recorded boot differs from now.
        Raises `UserError` for a file that is not whole or has a later format.
        """
        others: list[Recorded] = []
        for root in self._roots:
            here = root / machine_name(self.now)
            recorded_boots = [self._read(path) for path in self._files(here)]
            alike = [
                boot for boot in recorded_boots if not any(boot.conditions.differences(self.now))
            ]
            if alike:
                return [boot for boot in alike if boot.versions == alike[-1].versions], []
            others = others or recorded_boots
        others = others or [self._read(path) for path in self._of_other_machines()]
        return [], [*others[-1].conditions.differences(self.now)] if others else []

    def record(self, blocks: Sequence[Block], machine: Mapping[str, Any]) -> Path:
        """Write the blocks of a boot; `machine` extends pytest-benchmark's description of it."""
        stats: Any = Stats()  # type: ignore[no-untyped-call]
        for block in blocks:
            stats.update(block.took_s)
        family = str(self.now.model["family"])
        payload = {
            "format": FORMAT,
            "conditions": dataclasses.asdict(self.now),
            "versions": dict(self.versions),
            "blocks": [dataclasses.asdict(block) for block in blocks],
        }
        document = {
            "machine_info": {**_machine_info(), **machine},
            "commit_info": get_commit_info(),  # type: ignore[no-untyped-call]
            "benchmarks": [
                {
                    "group": family,
                    "name": f"block[{family}]",
                    "fullname": f"gates/test_throughput.py::block[{family}]",
                    "params": dict(self.now.work),
                    "param": self.now.lane,
                    "extra_info": {OURS: payload},
                    "options": {},
                    "stats": {**stats.as_dict(), "data": stats.data, "iterations": 1},
                }
            ],
            "datetime": datetime.datetime.now(datetime.UTC).isoformat(),
            "version": pytest_benchmark.__version__,
        }
        path = self.folder / f"{self._next():04d}_{self.name}.json"
        write_whole(path, json.dumps(document, indent=1) + "\n")
        return path

    def calibration(self) -> Calibration | None:
        """Return the calibration of an A/A run under these conditions, or None."""
        name = self._calibration_file().name
        folders = [root / machine_name(self.now) for root in self._roots]
        path = next((each / name for each in folders if (each / name).exists()), None)
        if path is None:
            return None
        payload = _payload(path, _json(path, self.command).get(OURS), self.command)
        try:
            calibration = Calibration(
                CONDITIONS.validate_python(payload["conditions"]),
                Scatter.model_validate(payload["pair_sd"]),
                COUNT.validate_python(payload["count"]),
            )
        except (KeyError, ValueError) as error:
            raise UserError(_corrupt(path, _reason(error), self.command)) from error
        return None if any(calibration.conditions.differences(self.now)) else calibration

    def calibrate(self, pair_sd: Scatter, pairs: Sequence[Pair]) -> Path:
        """Write the calibration of an A/A run, with all its blocks."""
        payload = {
            "format": FORMAT,
            "conditions": dataclasses.asdict(self.now),
            "versions": dict(self.versions),
            "pair_sd": pair_sd.model_dump(),
            "count": len(pairs),
            "pairs": [dataclasses.asdict(pair) for pair in pairs],
        }
        path = self._calibration_file()
        write_whole(path, json.dumps({OURS: payload}) + "\n")
        return path

    def _calibration_file(self) -> Path:
        return self.folder / f"{CALIBRATION}_{self.name}.json"

    def _files(self, folder: Path) -> list[Path]:
        pattern = re.compile(rf"\d{{4,}}_{re.escape(self.name)}\.json")
        return sorted(path for path in folder.glob("*.json") if pattern.fullmatch(path.name))

    def _of_other_machines(self) -> Iterator[Path]:
        for root in self._roots:
            for folder in sorted(root.glob("*/")):
                yield from self._files(folder)

    def _next(self) -> int:
        numbers = [int(path.name.partition("_")[0]) for path in self._numbered()]
        return max(numbers, default=0) + 1

    def _numbered(self) -> Iterator[Path]:
        for path in self.folder.glob("*_*.json"):
            if path.name.partition("_")[0].isdecimal():
                yield path

    def _read(self, path: Path) -> Recorded:
        document = _json(path, self.command)
        benchmarks = document.get("benchmarks")
        first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
        extra = first.get("extra_info") if isinstance(first, dict) else None
        payload = _payload(path, extra.get(OURS) if isinstance(extra, dict) else None, self.command)
        try:
            blocks = BLOCKS.validate_python(payload["blocks"])
            conditions = CONDITIONS.validate_python(payload["conditions"])
            versions = VERSIONS.validate_python(payload["versions"])
        except (KeyError, ValueError) as error:
            raise UserError(_corrupt(path, _reason(error), self.command)) from error
        if not blocks or any(block.took_s <= 0 for block in blocks):
            why = "it has no blocks, or blocks that took no time"
            raise UserError(_corrupt(path, why, self.command))
        for block in blocks:
            if name := _negative(block):
                why = f"{name} of the block {excerpt(block.name)} is below 0"
                raise UserError(_corrupt(path, why, self.command))
        return Recorded(path, conditions, versions, blocks)


def _reason(error: Exception) -> str:
    """Return what is wrong with a payload, in one line."""
    text = str(error).splitlines()[0]
    if not isinstance(error, ValidationError):
        return text
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{text}: {place}: {first['msg']}"


def _negative(block: Block) -> str:
    """Return the name of a figure below zero; '' if there is none."""
    figures = dataclasses.asdict(block)
    return next((name for name in COUNTED if (figures[name] or 0) < 0), "")


def _json(path: Path, command: str) -> dict[str, Any]:
    try:
        return bounded_read.json_object(path, unique=True, finite=True, whole=True)
    except FileError as error:
        raise UserError(_corrupt(path, error.why, command)) from error


def _payload(path: Path, payload: object, command: str) -> dict[str, Any]:
    """Return this package's part of a file, if this release reads its format."""
    if not isinstance(payload, dict) or "format" not in payload:
        raise UserError(_corrupt(path, f"it has no {OURS!r} data", command))
    if type(payload["format"]) is not int or payload["format"] != FORMAT:
        raise UserError(
            f"{path} has format {excerpt(payload['format'])}, but this release reads {FORMAT}: "
            "a later pytest-vllm-gates wrote it; install that release, or record the baseline "
            f"again in another folder: {command}"
        )
    return payload


def _corrupt(path: Path, why: str, command: str) -> str:
    return (
        f"the baseline {path} is corrupt: {why}\n"
        f"restore it (git checkout -- {path.name}), or delete it and record again: {command}"
    )


def _machine_info() -> dict[str, Any]:
    from pytest_benchmark.plugin import (  # noqa: PLC0415 - queries the processor for a second
        pytest_benchmark_generate_machine_info,
    )

    info: dict[str, Any] = pytest_benchmark_generate_machine_info()  # type: ignore[no-untyped-call]
    return info
