"""Checks whether the lines around a match meet the conditions of its signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pytest_vllm_gates.diagnosis.signature import Signature

MAX_WAITING = 100


@dataclass
class Waiting:
    """A match that the following lines decide."""

    signature: Signature
    hit: Hit
    boot: int
    until: int
    near: bool
    """Whether a line that it must be near was read."""


class MatchConditions:
    """The lines read so far that signatures' conditions name."""

    def __init__(self, places: Mapping[str, int], exit_status: int | None) -> None:
        self._places = places
        self._exit_status = exit_status
        self._passed: set[int] = set()
        """Patterns that an earlier line of this boot matches."""
        self._waiting: list[Waiting] = []

    def begin(self) -> None:
        """Forget earlier lines: the server was restarted."""
        self._passed.clear()

    def note(self, number: int, patterns: Collection[int]) -> Iterator[tuple[Signature, Hit, int]]:
        """Note the patterns that a line matches; yield the matches that it settles."""
        if not self._waiting:
            return
        still = []
        for waiting in self._waiting:
            conditions = waiting.signature.when
            in_time = number <= waiting.until
            if in_time and self._any(conditions.not_near, patterns):
                continue
            waiting.near = waiting.near or (in_time and self._any(conditions.near, patterns))
            if (waiting.near and not conditions.not_near) or not in_time:
                if waiting.near:
                    yield waiting.signature, waiting.hit, waiting.boot
                continue
            still.append(waiting)
        self._waiting = still

    def passed(self, patterns: Collection[int]) -> None:
        """Note that a line was read, so that later ones come after it."""
        self._passed.update(patterns)

    @property
    def wait(self) -> bool:
        """Whether a match waits for following lines."""
        return bool(self._waiting)

    def met(
        self, signature: Signature, hit: Hit, boot: int, is_matched: Callable[[int], bool]
    ) -> bool:
        """Return whether all conditions are met; one that following lines decide waits for them.

        `is_matched` returns whether the line, or a line before it that counts, matches a pattern.
        """
        conditions = signature.when
        if conditions.exit_status and self._exit_status not in (None, *conditions.exit_status):
            return False
        came_after = bool(conditions.after) and self._any(conditions.after, self._passed)
        if conditions.after and not came_after and not conditions.either:
            return False
        if conditions.not_after and self._any(conditions.not_after, self._passed):
            return False
        if any(is_matched(self._places[pattern]) for pattern in conditions.not_near):
            return False
        is_near = (
            (came_after and conditions.either)
            or not conditions.near
            or any(is_matched(self._places[pattern]) for pattern in conditions.near)
        )
        if is_near and not conditions.not_near:
            return True
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(
                Waiting(signature, hit, boot, hit.number + conditions.within, is_near)
            )
        return False

    def settle(self) -> Iterator[tuple[Signature, Hit, int]]:
        """Yield the matches that waited for a contradicting line which did not come."""
        for waiting in self._waiting:
            if waiting.near:
                yield waiting.signature, waiting.hit, waiting.boot
        self._waiting = []

    def _any(self, patterns: Collection[str], matched: Collection[int]) -> bool:
        return any(self._places[pattern] in matched for pattern in patterns)


@dataclass
class Hit:
    """A line that a signature's patterns match."""

    number: int
    text: str
    level: str
    process: str
    captures: dict[str, str]
    pattern: int
    warns: bool = False
    """Whether the line is only a warning."""
    node: str = ""
    """The machine or pod that printed it."""
