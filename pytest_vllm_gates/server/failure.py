"""The name of a failure in a log, its cause, and the next step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

UNKNOWN = "UNKNOWN"
CANDIDATES_SHOWN = 3
QUOTED_CHARACTERS = 4000
"""Reasons are quoted whole; vLLM's longest, of attention backends, has some 1500."""


class Confidence(StrEnum):
    """How sure a diagnosis is; `diagnosis/explain.py` has the rule."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class LogOutcome(StrEnum):
    """The state of the server at the end of its last boot in a log."""

    SERVES = "serves"
    LOADING = "loading"
    ENDED = "ended"
    """The server was requested to end."""
    FAILED = "failed"
    UNTOLD = "untold"
    """No line reports a server."""
    EMPTY = "empty"


@dataclass(frozen=True)
class Diagnosis:
    """One signature that a log shows."""

    id: str
    title: str
    name: str
    """The class of its signature: the name of the signature's file."""
    phase: str
    kind: str
    confidence: Confidence
    cause: str
    fixes: tuple[str, ...]
    line: int | None
    """Line of the log, from 1; None for a diagnosis from the exit status alone."""
    quoted: str
    times: int = 1
    processes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """The machines or pods that printed it, if the log names them."""
    captures: tuple[tuple[str, str], ...] = ()
    supported_by: tuple[str, ...] = ()
    """Facts of this machine that support it."""
    contradicted_by: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    infrastructure: bool = False
    """Whether the failure is outside the server: the disk, a port, the Hub."""

    @property
    def headline(self) -> str:
        """The diagnosis in one line."""
        return f"{self.id} ({self.confidence}): {self.title}"

    def lines(self) -> list[str]:
        """Return the diagnosis for a person: title, cause, next steps, and the evidence."""
        lines = [self.headline, f"  why:   {self.cause}"]
        lines += [
            f"  {'or:  ' if number else 'next:'}  {fix}" for number, fix in enumerate(self.fixes)
        ]
        if self.line is not None:
            often = f", {self.times} times" if self.times > 1 else ""
            if self.processes:
                processes = ", ".join(self.processes[:CANDIDATES_SHOWN])
                left_out = len(self.processes) - CANDIDATES_SHOWN
                often += f", by {processes}" + (f" and {left_out} more" if left_out > 0 else "")
            lines += [f"  seen:  line {self.line}{often}", f"         {self.quoted}"]
        if self.nodes:
            shown = ", ".join(self.nodes[:CANDIDATES_SHOWN])
            more = len(self.nodes) - CANDIDATES_SHOWN
            others = f" and {more} more" if more > 0 else ""
            lines.append(f"  where: on the node that printed it: {shown}{others}")
        lines += [f"  this machine agrees: {sentence}" for sentence in self.supported_by]
        lines += [f"  this machine contradicts it: {sentence}" for sentence in self.contradicted_by]
        if self.references:
            lines.append(f"  see:   {', '.join(self.references)}")
        return lines


@dataclass(frozen=True)
class Explanation:
    """The failure that a log reports."""

    answer: Diagnosis | None = None
    """None without a known failure; then `error` shows whether there was an error at all."""
    error: tuple[str, ...] = ()
    """The earliest error block that no signature explains."""
    error_line: int | None = None
    error_text: str = ""
    """The line of the block that reports the error."""
    survived: bool = False
    """Whether the server went on serving after that error."""
    well: bool = False
    """Whether it served to the end, as far as the log shows: then the error ended nothing."""
    refused: bool = False
    """Whether the server is well and only refused requests of clients."""
    outcome: LogOutcome = LogOutcome.UNTOLD
    outcome_text: str = ""
    """The same in a sentence, with its line."""
    candidates: tuple[Diagnosis, ...] = ()
    warnings: tuple[Diagnosis, ...] = ()
    wrappers: tuple[Diagnosis, ...] = ()
    lines_read: int = 0

    @property
    def unknown(self) -> bool:
        """Whether there is an error that no signature knows."""
        return self.answer is None and bool(self.error) and not self.well

    @property
    def id(self) -> str | None:
        """The answer's id, UNKNOWN, or None if the log reports no failure."""
        if self.answer:
            return self.answer.id
        return UNKNOWN if self.unknown else None

    @property
    def of_infrastructure(self) -> bool:
        """Whether the failure is certainly outside the server."""
        answer = self.answer
        return bool(
            answer and answer.infrastructure and answer.confidence is not Confidence.POSSIBLE
        )

    @property
    def untold(self) -> bool:
        """Whether the log does not show the result: it is empty, or ends while the server loads."""
        return self.answer is None and self.outcome in (LogOutcome.EMPTY, LogOutcome.LOADING)

    @property
    def name(self) -> str:
        """The id and its title; empty without a failure."""
        if self.answer:
            return f"{self.answer.id}, {self.answer.title}"
        return f"{UNKNOWN}, {self.error_text or self.error[-1]}" if self.unknown else ""

    @property
    def brief(self) -> str:
        """The name and the fix in one line; empty without a failure."""
        if self.answer:
            return f"{self.answer.headline}; next: {self.answer.fixes[0]}"
        return f"{UNKNOWN}: {self.error_text or self.error[-1]}" if self.unknown else ""

    def _first_lines(self) -> list[str]:
        """Return the answer, or that there is none, and the server's state since then."""
        if self.answer:
            lines = self.answer.lines()
            if self.refused and self.outcome is LogOutcome.SERVES:
                lines.append("  the server itself is well: it refused requests of this kind")
            elif self.outcome in (LogOutcome.SERVES, LogOutcome.LOADING):
                lines.append(f"  since then: {self.outcome_text}")
        elif self.unknown:
            lines = [f"{UNKNOWN}: no signature knows this failure"]
        elif self.outcome in (LogOutcome.LOADING, LogOutcome.EMPTY):
            lines = [self.outcome_text]
        else:
            lines = ["the log reports no failure"] if self.error else ["the log reports no error"]
            if self.outcome_text:
                lines.append(f"  {self.outcome_text}")
        return lines

    def lines(self) -> list[str]:
        """Return the explanation for a person at a terminal."""
        lines = self._first_lines()
        if self.error:
            went_on = ", after which the server went on serving" if self.survived else ""
            location = f" (line {self.error_line}{went_on})" if self.error_line else ""
            headline = "an error that it does not explain" if self.answer else "the earliest error"
            lines += ["", f"{headline}{location}:", *(f"    {line}" for line in self.error)]
        for headline, diagnoses in (
            ("also possible", self.candidates),
            ("reported by", self.wrappers),
            ("besides, a warning", self.warnings),
        ):
            for number, diagnosis in enumerate(diagnoses[:CANDIDATES_SHOWN]):
                if not number:
                    lines.append("")
                place = f" (line {diagnosis.line})" if diagnosis.line else ""
                lines.append(f"{headline}: {diagnosis.id}{place}: {diagnosis.title}")
        return lines

    def document(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        return {
            "id": self.id,
            "answer": _document(self.answer) if self.answer else None,
            "error": list(self.error),
            "error_line": self.error_line,
            "error_text": self.error_text,
            "survived": self.survived,
            "well": self.well,
            "refused": self.refused,
            "outcome": str(self.outcome),
            "outcome_text": self.outcome_text,
            "candidates": [_document(candidate) for candidate in self.candidates],
            "wrappers": [_document(wrapper) for wrapper in self.wrappers],
            "warnings": [_document(warning) for warning in self.warnings],
            "lines_read": self.lines_read,
        }


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    document = dataclasses.asdict(diagnosis)
    document["class"] = document.pop("name")
    document["confidence"] = str(diagnosis.confidence)
    document["captures"] = dict(diagnosis.captures)
    return document
