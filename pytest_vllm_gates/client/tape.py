"""Keeps requests and responses of a server in memory, by the part of the run."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.exchange import Sent

PART_BYTES = 64 * 2**20
"""Limit of one part: its oldest sends are dropped first."""
TAPE_BYTES = 192 * 2**20
"""Limit of all parts: the part that has been idle longest is dropped first."""
WALK = "the walk of the matrix"
BOOT = "the boot"


class Tape:
    """The sends of one server, by the part of the run that sent them: a test, or the walk.

    Safe to use from several threads. Bounded: the sends that are dropped are counted.
    """

    def __init__(self, part_bytes: int = PART_BYTES, tape_bytes: int = TAPE_BYTES) -> None:
        self._lock = threading.Lock()
        self._limits = part_bytes, tape_bytes
        self._parts: dict[str, deque[Sent]] = {}
        self._bytes: dict[str, int] = {}
        self._part = ""
        self.count = 0
        """How many sends were kept, without the boot's, including those dropped later.

        Sends under a named part are counted in `ahead`.
        """
        self.ahead = Counter[str]()
        """How many sends were kept under a named part, by part."""
        self.lost: dict[str, int] = {}
        """How many sends of a part were dropped."""

    def turn_to(self, part: str) -> None:
        """Keep the following sends under this part."""
        with self._lock:
            self._part = part

    @contextlib.contextmanager
    def part(self, part: str) -> Iterator[None]:
        """Keep the block's sends under this part."""
        before = self._part
        self.turn_to(part)
        try:
            yield
        finally:
            self.turn_to(before)

    def keep(self, sent: Sent, part_name: str = "") -> None:
        """Keep a send under the named part, else under the current one."""
        with self._lock:
            name = part_name or self._part
            if part_name:
                self.ahead[part_name] += 1
            else:
                self.count += name != BOOT
            # The part in use is last.
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
        """Return the sends of these parts, or of all, in the order of sending, part by part."""
        with self._lock:
            return [sent for name in parts or self._parts for sent in self._parts.get(name, ())]

    def forget(self, part: str) -> None:
        """Forget a part."""
        with self._lock:
            self._parts.pop(part, None)
            self._bytes.pop(part, None)

    def parts(self) -> list[str]:
        """Return the names of all parts, the one in use last."""
        with self._lock:
            return list(self._parts)
