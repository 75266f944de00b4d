"""The durations of boots and gates, from the verdicts of earlier runs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE = data.FOLDER / "fleet.toml"
VERDICT = "verdict.json"
FEATURES = "features"
"""The gate that boots again for each set of features."""


class Seconds(toml.Record):
    """The durations to assume without records."""

    boot: int = Field(gt=0)
    gate: int = Field(gt=0)
    features: int = Field(gt=0)


class FleetFacts(toml.Record):
    """The file."""

    seconds: Seconds
    jobs: dict[str, int]
    """The most jobs that an engine accepts at once."""


def facts() -> FleetFacts:
    """Return the content of `fleet.toml`."""
    return toml.load(FILE, FleetFacts)


@dataclass
class Durations:
    """Seconds by family, lane and gate; an empty gate means the boot."""

    default: Seconds
    _seen: dict[tuple[str, str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, document: Mapping[str, Any]) -> None:
        """Add the times of a verdict."""
        lane = document["lane"]["name"]
        for family in document["families"]:
            times = (family["boot"] or {}).get("times") or {}
            if isinstance(first := times.get("first_chat_s"), int | float):
                self._seen[family["name"], lane, ""].append(float(first))
            for gate in family["gates"]:
                if gate["tests"]:
                    key = family["name"], lane, gate["gate"]
                    self._seen[key].append(float(gate["duration_s"]))

    def boot_s(self, family: str, lane: str) -> float:
        """Return how long a family boots on a lane."""
        return self._median(family, lane, "") or self.default.boot

    def gate_s(self, family: str, lane: str, gate: str) -> float:
        """Return how long a gate takes, its own boots included."""
        default = self.default.features if gate == FEATURES else self.default.gate
        known = self._median(family, lane, gate)
        return default if known is None else known

    def _median(self, family: str, lane: str, gate: str) -> float | None:
        """Return the median there, else the family's on any lane, else the median of all."""
        for key in ((family, lane), (family, None), (None, None)):
            found = [
                value
                for (of_family, of_lane, of_gate), values in self._seen.items()
                for value in values
                if of_gate == gate and key[0] in (None, of_family) and key[1] in (None, of_lane)
            ]
            if found:
                return statistics.median(found)
        return None


def recorded(folders: Iterable[Path]) -> Durations:
    """Return the times of every `verdict.json` in and below these folders.

    Raises `UserError` for a folder without one, and for a verdict that cannot be read.
    """
    durations = Durations(facts().seconds)
    for folder in folders:
        files = sorted(folder.rglob(VERDICT))
        if not files:
            raise UserError(
                f"{folder}: no {VERDICT} in it or below it\n"
                "name a report's folder: pytest --model ... --gates-report DIR writes one"
            )
        for file in files:
            try:
                durations.add(bounded_read.json_object(file, unique=True))
            except (FileError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise UserError(
                    f"{file}: not a verdict of these gates: {error}\n"
                    "leave its folder out of --recorded"
                ) from error
    return durations
