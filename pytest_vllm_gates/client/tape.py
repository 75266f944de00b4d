"""Keeps requests and responses of a server in memory, by the part of the run."""

from __future__ import annotations

import contextlib
import threading
import zlib
from array import array
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.exchange import Sent

PART_BYTES = 64 * 2**20
"""Limit of one part: its oldest sends are dropped first."""
TAPE_BYTES = 192 * 2**20
"""Limit of all parts: the part that has been idle longest is dropped first."""
PACKED_BYTES = 4 * 2**10
"""A send of at least this size is compressed: most are never read again."""
FASTEST = 1
WALK = "the walk of the matrix"
BOOT = "the boot"


@dataclass(frozen=True)
class _Packed:
    """A send whose body and answer are compressed together."""

    bare: Sent
    size: int
    """The send's size, which the limits count: all of a tape may be read at once."""
    data: bytes
    body_bytes: int
    times_s: array[float]
    sizes: array[int]
    """The bytes of each piece of the answer."""

    @staticmethod
    def of(sent: Sent) -> _Packed:
        """Compress a send."""
        packer = zlib.compressobj(FASTEST)
        parts = [packer.compress(data) for data in (sent.body, *(data for _, data in sent.pieces))]
        return _Packed(
            bare=replace(sent, body=b"", pieces=()),
            size=sent.size,
            data=b"".join((*parts, packer.flush())),
            body_bytes=len(sent.body),
            times_s=array("d", (at_s for at_s, _ in sent.pieces)),
            sizes=array("Q", (len(data) for _, data in sent.pieces)),
        )

    def sent(self) -> Sent:
        """Return the send as it was."""
        data = memoryview(zlib.decompress(self.data))
        body, at = bytes(data[: self.body_bytes]), self.body_bytes
        pieces = []
        for at_s, size in zip(self.times_s, self.sizes, strict=True):
            pieces.append((at_s, bytes(data[at : at + size])))
            at += size
        return replace(self.bare, body=body, pieces=tuple(pieces))


class Tape:
    """The sends of one server, by the part of the run that sent them: a test, or the walk.

    Safe to use from several threads. Bounded: the sends that are dropped are counted. Large sends
    are compressed: they equal those that were kept, and are not the same objects.
    """

    def __init__(self, part_bytes: int = PART_BYTES, tape_bytes: int = TAPE_BYTES) -> None:
        self._lock = threading.Lock()
        self._limits = part_bytes, tape_bytes
        self._parts: dict[str, deque[Sent | _Packed]] = {}
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
        kept = _Packed.of(sent) if sent.size >= PACKED_BYTES else sent
        with self._lock:
            name = part_name or self._part
            if part_name:
                self.ahead[part_name] += 1
            else:
                self.count += name != BOOT
            # The part in use is last.
            part = self._parts[name] = self._parts.pop(name, deque())
            part.append(kept)
            self._bytes[name] = self._bytes.get(name, 0) + kept.size
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
            kept = [each for name in parts or self._parts for each in self._parts.get(name, ())]
        return [each.sent() if isinstance(each, _Packed) else each for each in kept]

    def forget(self, part: str) -> None:
        """Forget a part."""
        with self._lock:
            self._parts.pop(part, None)
            self._bytes.pop(part, None)

    def parts(self) -> list[str]:
        """Return the names of all parts, the one in use last."""
        with self._lock:
            return list(self._parts)
