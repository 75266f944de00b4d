"""The copies of requests in progress: memory limits, and counts of what happened to each."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.exchange import Sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.shadow.headers import Header

PIECE_BYTES = 128
"""Memory that a piece takes in addition to its bytes."""


STATEFUL = "it needs state that only the stable server has"
"""Why a request has no copy: the canary never got the earlier request that it refers to."""


@dataclass(frozen=True)
class MirrorLimits:
    """How many copies may be in progress, and how many bytes are kept."""

    in_flight: int = 64
    """Copies that the canary answers concurrently."""
    waiting: int = 256
    """Copies that wait for their turn."""
    side_bytes: int = 4 * 2**20
    """The most that is kept of one side's answer; also the size limit of a mirrored request."""
    all_bytes: int = 256 * 2**20
    """The most that is kept of all requests and answers together."""
    canary_s: float = 120.0
    """How long the canary may take for an answer."""


class CopyRoom:
    """The memory that is left for all copies."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> bool:
        """Take so many bytes; false if there is not enough room."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Return bytes to the budget."""
        self.used -= size


class KeptAnswer:
    """The pieces of an answer as they come, within the limits."""

    def __init__(self, room: CopyRoom, most: int) -> None:
        self._room = room
        self._most = most
        self.pieces: list[tuple[float, bytes]] = []
        self.size = self.cut_bytes = 0

    def add(self, at_s: float, piece: bytes) -> bool:
        """Keep a piece; false if there is not enough room, and then nothing more is kept."""
        size = len(piece) + PIECE_BYTES
        if self.cut_bytes or self.size + size > self._most or not self._room.take(size):
            self.cut_bytes += len(piece)
            return False
        self.size += size
        self.pieces.append((at_s, piece))
        return True

    def forget(self) -> None:
        """Free the memory."""
        self._room.give_back(self.size)
        self.pieces, self.size = [], 0


@dataclass
class RequestCopy:
    """A request that is mirrored, with the stable server's answer once it has ended."""

    method: str
    path: str
    """With its query string, as the client sent it."""
    headers: Sequence[Header]
    """The headers that the canary gets, without the client's key."""
    body: bytes
    stable: KeptAnswer
    answered: asyncio.Future[Sent | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """The stable server's side; None if its client hung up, so that no pair exists."""
    pair: asyncio.Task[None] | None = None
    """The task that sends the copy to the canary and has the pair judged."""

    def sent(
        self,
        kept: KeptAnswer,
        status: int | None,
        response_headers: Sequence[Header] = (),
        error: str = "",
    ) -> Sent:
        """Return one side of the pair."""
        return Sent(
            method=self.method,
            path=self.path,
            headers=dict(self.headers),
            body=self.body,
            status=status,
            response_headers=dict(response_headers),
            pieces=tuple(kept.pieces),
            error=error,
            cut_bytes=kept.cut_bytes,
        )

    def settle(self, sent: Sent | None) -> None:
        """Record how the stable server's answer ended; only the first call counts."""
        if not self.answered.done():
            self.answered.set_result(sent)


@dataclass
class MirrorCounts:
    """How many requests were passed on, copied or left out."""

    passed: int = 0
    """Requests of clients that were passed on."""
    failed: int = 0
    """Requests among them that could not be sent to the stable server."""
    mirrored: int = 0
    """Copies that were sent to the canary."""
    not_mirrored: Counter[str] = field(default_factory=Counter)
    """Requests without a copy, and copies without a pair, by the reason."""
