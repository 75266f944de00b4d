"""Names a failure: reads a server's log and gives one cause and one fix, or UNKNOWN.

`diagnosis/ranking.py` chooses the root from several signatures, and `diagnosis/building.py` decides
how sure the answer is. A log without an error gets no diagnosis. A short text without a result is
read again with its wrapped lines joined, because people paste from pages.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_vllm_gates.diagnosis import quoted, sources
from pytest_vllm_gates.diagnosis.building import ExplanationBuilder
from pytest_vllm_gates.diagnosis.matcher import Matcher, PatternTable
from pytest_vllm_gates.server.failure import Confidence, LogOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.diagnosis.signature import SignatureClass
    from pytest_vllm_gates.preflight.types import Situation
    from pytest_vllm_gates.server.failure import Explanation


@lru_cache(maxsize=4)
def table(classes: tuple[SignatureClass, ...]) -> PatternTable:
    """Return the patterns of these classes, prepared for the search."""
    return PatternTable(classes)


def explain(
    blocks: Iterable[bytes],
    classes: tuple[SignatureClass, ...],
    exit_status: int | None = None,
    situation: Situation | None = None,
) -> Explanation:
    """Return the failure in a log, which is given in blocks of whole lines.

    `exit_status` is the process's (negative for a signal), and `situation` describes its machine,
    if they are known.
    """
    reading = _Reading(classes, exit_status, situation)
    for block in blocks:
        reading.feed(block)
    return reading.explanation()


def explain_parts(
    blocks: Iterable[bytes],
    classes: tuple[SignatureClass, ...],
    exit_status: int | None = None,
    situation: Situation | None = None,
) -> dict[str, Explanation]:
    """Return the failure in the log of each container or file, by its name.

    A single one has the name "". Line numbers are those of the whole.
    """
    readings: dict[str, _Reading] = {}
    for name, block in sources.parts(blocks):
        if name not in readings:
            readings[name] = _Reading(classes, exit_status, situation)
        readings[name].feed(block)
    if not readings:
        readings[""] = _Reading(classes, exit_status, situation)
    return {name: reading.explanation() for name, reading in readings.items()}


class _Reading:
    """One log while it is read; a short one is kept, to read it again with joined lines."""

    def __init__(
        self,
        classes: tuple[SignatureClass, ...],
        exit_status: int | None,
        situation: Situation | None,
    ) -> None:
        self._classes, self._situation = classes, situation
        self._matcher = Matcher(table(classes), exit_status)
        self._kept: bytes | None = b""

    def feed(self, block: bytes) -> None:
        """Read a block of whole lines."""
        self._matcher.feed(block)
        if self._kept is not None:
            short = len(self._kept) + len(block) <= quoted.MOST_BYTES
            self._kept = self._kept + block if short else None

    def explanation(self) -> Explanation:
        """Return the failure in the log."""
        self._matcher.finish()
        explanation = ExplanationBuilder(self._matcher, self._situation).explanation()
        named = explanation.answer is not None and explanation.answer.kind == "failure"
        if not self._kept or named or explanation.outcome is LogOutcome.SERVES:
            return explanation
        status = self._matcher.exit_status
        return _of_quoted(self._kept, self._classes, status, self._situation) or explanation


def _of_quoted(
    text: bytes,
    classes: tuple[SignatureClass, ...],
    exit_status: int | None,
    situation: Situation | None,
) -> Explanation | None:
    """Return the failure in a short text with its wrapped lines joined; None without one."""
    for between in (" ", ""):
        matcher = Matcher(table(classes), exit_status)
        matcher.feed(quoted.joined(text, between))
        matcher.finish()
        explanation = ExplanationBuilder(matcher, situation).explanation()
        answer = explanation.answer
        if answer and answer.kind == "failure" and answer.line is not None:
            if answer.confidence is Confidence.CERTAIN:
                answer = dataclasses.replace(answer, confidence=Confidence.LIKELY)
            return dataclasses.replace(explanation, answer=answer)
    return None
