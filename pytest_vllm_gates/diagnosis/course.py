"""The progress of each boot in a log: whether it was loading, ready, serving, or shut down."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pytest_vllm_gates.server.failure import LogOutcome

ANSWERED = re.compile(rb'"POST /v1/[^"\n]*" 200|generation throughput: (?!0\.0 )\d')
SIGNS = (b'" 200', b"generation throughput: ")
STAGE_CHARACTERS = 200
LOOKED_AT = 200
"""Lines at the end of a block that are searched for an answered request."""
ANSWERED_LINES = 30
"""Lines after an error in which earlier requests may still be answered."""


@dataclass
class BootCourse:
    """One boot; lines of the log from 1, None if the log has no such line."""

    begun: int | None = None
    """Its banner."""
    loading: int | None = None
    """The last line that reports loading or warming up."""
    stage: str = ""
    """The text of that line."""
    ready: int | None = None
    served: int | None = None
    """The last line that reports an answered request."""
    asked_to_end: int | None = None

    def begin(self, line: int) -> None:
        """Note a line of the banner."""
        self.begun = self.begun or line

    def load(self, line: int, stage: str) -> None:
        """Note a line that reports the progress of the start."""
        self.loading, self.stage = line, stage

    def become_ready(self, line: int) -> None:
        """Note that the server answers requests from this line on."""
        self.ready = self.ready or line

    def ask_to_end(self, line: int) -> None:
        """Note that the server got a request to shut down."""
        self.asked_to_end = self.asked_to_end or line

    @property
    def serves(self) -> bool:
        """Whether the boot reached serving."""
        return self.ready is not None or self.served is not None

    @property
    def started(self) -> bool:
        """Whether anything shows that a server was started."""
        return self.serves or self.begun is not None or self.loading is not None

    def overcame(self, line: int) -> bool:
        """Return whether the boot became ready after a line, or answered requests well after it."""
        if self.ready is not None and line < self.ready:
            return True
        return self.served is not None and line + ANSWERED_LINES < self.served


@dataclass
class Course:
    """The boots of a log, by their number."""

    boots: dict[int, BootCourse] = field(default_factory=dict)

    def of(self, boot: int) -> BootCourse:
        """Return a boot's course; empty if nothing is known about it."""
        return self.boots.setdefault(boot, BootCourse())

    def note_answers(self, block: bytes, before: int, boot: int, first_line: int) -> None:
        """Note the last answered request of a block; `before` lines precede the block."""
        end = len(block)
        for _ in range(LOOKED_AT):
            position = max(block.rfind(sign, 0, end) for sign in SIGNS)
            if position < 0:
                return
            end = block.rfind(b"\n", 0, position) + 1
            line_end = block.find(b"\n", position)
            if ANSWERED.search(block[end : line_end if line_end >= 0 else len(block)]):
                number = before + 1 + block.count(b"\n", 0, end)
                if number >= first_line:
                    self.of(boot).served = number
                return
            if not end:
                return


def outcome_of(course: Course, boot: int, lines: int, *, failed: bool) -> tuple[LogOutcome, str]:
    """Return the state of the last boot at the log's end, and the sentence that reports it."""
    last = course.of(boot)
    if failed:
        return LogOutcome.FAILED, ""
    if last.asked_to_end:
        return LogOutcome.ENDED, f"the server got a request to shut down (line {last.asked_to_end})"
    if last.serves:
        again = "was started again and serves" if boot else "serves"
        how = f"answers requests (line {last.served})"
        if not last.served:
            how = f"became ready (line {last.ready})"
        return LogOutcome.SERVES, f"the server {again}: it {how}"
    if last.started:
        stage = f": {last.stage[:STAGE_CHARACTERS]}" if last.stage else ""
        begun = "starts again" if boot else "starts"
        return (
            LogOutcome.LOADING,
            f"the log ends while the server {begun}: it reports neither a ready server nor an "
            f"error; the last progress is line {last.loading or last.begun}{stage}",
        )
    if not lines:
        return LogOutcome.EMPTY, "the log is empty: nothing was read, so nothing is diagnosed"
    return LogOutcome.UNTOLD, f"none of its lines reports a start or a request ({lines} read)"
