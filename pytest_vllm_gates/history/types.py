"""One run in a project's history with its main figures, and the trend of each figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.environment.types import MAIN_PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE = Path(".vllm-gates", "history.sqlite")
"""The history's file, relative to the project's rootdir."""
FIGURES = ("boot_s", "output_tokens_per_s", "ttft_s", "itl_s", "kv_tokens", "goodput_per_s")
"""Seconds until the first chat was answered; the throughput gate's medians of output tokens a
second, time to first token and inter-token latency; tokens of the KV cache; requests a second
within the limits of the load gate's independent arrivals."""


@dataclass(frozen=True)
class HistoryEntry:
    """One run."""

    created: str
    """ISO 8601, UTC."""
    command: tuple[str, ...]
    promotion: str
    reasons: tuple[str, ...]
    exit_status: int
    lane: str
    against: str | None
    machine: str
    versions: Mapping[str, str]
    """The versions of the packages that affect serving."""
    checkpoints: Mapping[str, str]
    """The checkpoint's name by family."""
    figures: Mapping[str, Mapping[str, float]]
    """By family, the members of `FIGURES` that the run measured."""

    def document(self) -> dict[str, Any]:
        """Return the run as `verdict.json` has it under `history`."""
        return {
            "created": self.created,
            "promotion": self.promotion,
            "lane": self.lane,
            "versions": dict(self.versions),
            "figures": {
                f"{family}: {name}": value
                for family, figures in self.figures.items()
                for name, value in figures.items()
            },
        }


def entry(document: Mapping[str, Any]) -> HistoryEntry:
    """Return the entry of a run, from its `verdict.json`."""
    lane, families = document["lane"], document["families"]
    against = document.get("against")
    return HistoryEntry(
        created=document["created"],
        command=tuple(document["command"]),
        promotion=document["promotion"],
        reasons=tuple(document["reasons"]),
        exit_status=document["exit_status"],
        lane=lane["name"],
        against=against["lane"]["name"] if against else None,
        machine=_machine(document["machine"]),
        versions=_versions(lane["versions"], families),
        checkpoints={family["name"]: family["checkpoint"]["name"] for family in families},
        figures={family["name"]: dict(_figures(family)) for family in families},
    )


def _machine(machine: Mapping[str, Any]) -> str:
    """Return the machine that figures are compared on: the GPUs, or the processor without GPUs."""
    if machine["gpus"]:
        return ", ".join(machine["gpus"])
    return f"{machine['cpu']}, {machine['cores']} cores"


def _versions(versions: Mapping[str, str], families: list[dict[str, Any]]) -> dict[str, str]:
    if main := {name: versions[name] for name in MAIN_PACKAGES if name in versions}:
        return main
    # A server that the run did not start reports only its own version.
    reported = (_evidence(family, "boot", "server_version") for family in families)
    return next(({"vllm": str(version)} for version in reported if version), {})


def _figures(family: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    boot = family["boot"] or {}
    measured = _evidence(family, "throughput", "figures") or {}
    loaded = _evidence(family, "load", "figures") or {}
    figures = {
        "boot_s": (boot.get("times") or {}).get("first_chat_s"),
        **{name: measured.get(name) for name in ("output_tokens_per_s", "ttft_s", "itl_s")},
        "kv_tokens": _evidence(family, "startup", "kv_tokens"),
        "goodput_per_s": (loaded.get("arrivals") or {}).get("goodput_per_s"),
    }
    for name, value in figures.items():
        if isinstance(value, int | float):
            yield name, float(value)


def _evidence(family: Mapping[str, Any], gate: str, key: str) -> Any:
    """Return the first evidence with that key from a gate's tests."""
    return next(
        (
            test["evidence"][key]
            for each in family["gates"]
            if each["gate"] == gate
            for test in each["tests"]
            if key in test["evidence"]
        ),
        None,
    )


LEAST = 2


@dataclass(frozen=True)
class Trend:
    """One figure of one family and checkpoint on one lane and machine, the oldest value first."""

    family: str
    checkpoint: str
    lane: str
    machine: str
    figure: str
    values: tuple[float, ...]

    @property
    def change(self) -> float | None:
        """The last value's change from the median of those before, as a share; None for zero."""
        before = statistics.median(self.values[:-1])
        return self.values[-1] / before - 1 if before else None


def trends(entries: Iterable[HistoryEntry], family: str | None = None) -> tuple[Trend, ...]:
    """Return the trend of every figure in two runs or more, of one family or of all."""
    values_by_series: dict[tuple[str, str, str, str, str], list[float]] = {}
    for entry in entries:
        for name, figures in entry.figures.items():
            if family not in (None, name):
                continue
            series = (name, entry.checkpoints[name], entry.lane, entry.machine)
            for figure in FIGURES:
                if figure in figures:
                    values_by_series.setdefault((*series, figure), []).append(figures[figure])
    return tuple(
        Trend(*series, tuple(values))
        for series, values in values_by_series.items()
        if len(values) >= LEAST
    )
