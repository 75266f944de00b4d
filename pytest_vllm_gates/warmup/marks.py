"""Separates the phases of a start by lines of the server's growing log."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FILE = data.FOLDER / "warmup.toml"
ENGINE, SERVING, ANSWER = "engine", "serving", "first answer"
WITHIN_ENGINE = {"compiling": "compiling", "graphs": "graphs"}
"""Phases of `startup.toml` within the engine phase; the log has their seconds."""
LONGEST_LINE = 2**16


class LogMark(toml.Record):
    """A line that ends a phase."""

    phase: str
    says: str
    patterns: tuple[str, ...] = Field(min_length=1)


class WarmupSettings(toml.Record):
    """The contents of the file."""

    marks: tuple[LogMark, ...] = Field(min_length=1)
    caches: dict[str, str] = Field(min_length=1)
    """Environment variables that name a folder of caches, and the folder's name."""


def load(path: Path = FILE) -> WarmupSettings:
    """Read the file; raises `UserError` for a fault in it."""
    return toml.load(path, WarmupSettings)


class LogMarks:
    """Records when each mark appears in a log, in seconds since the creation of this object.

    Ranks log the same line at different times: the last one before a later mark counts.
    """

    def __init__(self, marks: Sequence[LogMark]) -> None:
        self._patterns = {
            mark.phase: re.compile("|".join(f"(?:{pattern})" for pattern in mark.patterns))
            for mark in marks
        }
        self._begun_s = time.monotonic()
        self._incomplete = ""
        self.at_s: dict[str, float] = {}

    def take(self, fresh: str) -> None:
        """Add new text of the log."""
        self.note(fresh, time.monotonic() - self._begun_s)

    def note(self, fresh: str, at_s: float) -> None:
        """Add text that the log gained at that time."""
        text = self._incomplete + fresh
        self._incomplete = text[text.rfind("\n") + 1 :][-LONGEST_LINE:]
        order = [*self._patterns]
        begun = max((order.index(phase) for phase in self.at_s), default=0)
        for phase in order[begun:]:
            if self._patterns[phase].search(text):
                self.at_s[phase] = at_s


def phases(
    at_s: Mapping[str, float],
    logged_s: Mapping[str, float],
    marks: Sequence[LogMark],
    health_s: float,
    total_s: float,
) -> dict[str, float]:
    """Return the seconds of each phase, in order; they add up to `total_s`.

    `at_s` is the time of each mark, `logged_s` the log's own times of phases, in seconds.
    """
    found: dict[str, float] = {}
    begun_s = 0.0
    for mark in marks:
        if mark.phase in at_s:
            end_s = min(max(at_s[mark.phase], begun_s), health_s)
            found[mark.phase] = end_s - begun_s
            begun_s = end_s
    found[SERVING] = health_s - begun_s
    around = ENGINE if ENGINE in found else SERVING
    for name, logged in WITHIN_ENGINE.items():
        if name in logged_s:
            found[logged] = min(logged_s[name], found[around])
            found[around] -= found[logged]
    found[ANSWER] = total_s - health_s
    order = [mark.phase for mark in marks]
    at = order.index(ENGINE) if ENGINE in order else len(order)
    order[at:at] = WITHIN_ENGINE.values()
    return {name: found[name] for name in (*order, SERVING, ANSWER) if name in found}
