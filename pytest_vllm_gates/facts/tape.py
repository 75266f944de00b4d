"""What was sent to a server and what came back, kept in memory until a test has passed."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.incidents.types import Sent

PART_BYTES = 64 * 2**20
"""Of one part: the oldest of its sends go first."""
TAPE_BYTES = 192 * 2**20
"""Of all parts: the part that was longest not sent from goes first."""
WALK = "the walk of the matrix"
BOOT = "the boot"


class Tape:
    """The sends of one server, by the part of the run that sent them: a test, or the walk.

    Safe to use from several threads. Bounded: what is lost of a part is counted.
    """

    def __init__(self, part_bytes: int = PART_BYTES, tape_bytes: int = TAPE_BYTES) -> None:
        self._lock = threading.Lock()
        self._limits = part_bytes, tape_bytes
        self._parts: dict[str, deque[Sent]] = {}
        self._bytes: dict[str, int] = {}
        self._part = ""
        self.lost: dict[str, int] = {}
        """How many sends of a part are no longer here."""

    def turn_to(self, part: str) -> None:
        """Keep what follows under this part."""
        with self._lock:
            self._part = part

    @contextlib.contextmanager
    def part(self, part: str) -> Iterator[None]:
        """Keep what is sent meanwhile under this part."""
        before = self._part
        self.turn_to(part)
        try:
            yield
        finally:
            self.turn_to(before)

    def keep(self, sent: Sent) -> None:
        """Keep a send under the present part."""
        with self._lock:
            name = self._part
            # The part that is at work stands last.
            part = self._parts[name] = self._parts.pop(name, deque())
            part.append(sent)
            self._bytes[name] = self._bytes.get(name, 0) + sent.size
            part_bytes, tape_bytes = self._limits
            while self._bytes[name] > part_bytes and len(part) > 1:
                self._bytes[name] -= part.popleft().size
                self.lost[name] = self.lost.get(name, 0) + 1
            while sum(self._bytes.values()) > tape_bytes and len(self._parts) > 1:
                oldest = next(iter(self._parts))
                self.lost[oldest] = self.lost.get(oldest, 0) + len(self._parts.pop(oldest))
                del self._bytes[oldest]

    def of(self, *parts: str) -> list[Sent]:
        """Return what is kept of these parts, or of all: as it was sent, part by part."""
        with self._lock:
            return [one for name in parts or self._parts for one in self._parts.get(name, ())]

    def forget(self, part: str) -> None:
        """Forget a part."""
        with self._lock:
            self._parts.pop(part, None)
            self._bytes.pop(part, None)

    def parts(self) -> list[str]:
        """Return the parts there are, the one at work last."""
        with self._lock:
            return list(self._parts)
