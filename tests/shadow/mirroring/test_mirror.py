"""What the mirror reads from the canary, and how fast."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.shadow.copies import (
    CopyRoom,
    KeptAnswer,
    MirrorCounts,
    MirrorLimits,
    RequestCopy,
)
from pytest_vllm_gates.shadow.mirroring import mirror as mirroring
from shadow.shadow_servers import CHAT, Chats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.exchange import Sent

LIMITS = MirrorLimits(side_bytes=2**20)
WAIT_S = 0.05


@pytest.fixture
def flood() -> Iterator[Chats]:
    """A canary that sends 64 MiB a second without end."""
    server = Chats("floods")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


async def mirrored(url: str) -> list[Sent]:
    """Return the canary's sides of one chat."""
    pairs: list[Sent] = []

    async def judged(_stable: Sent, canary: Sent) -> None:
        pairs.append(canary)

    room = CopyRoom(LIMITS.all_bytes)
    mirror = mirroring.Mirror(url, None, LIMITS, room, MirrorCounts(), judged)
    copy = RequestCopy("POST", CHAT, [], b"{}", KeptAnswer(room, LIMITS.side_bytes))
    copy.settle(copy.sent(copy.stable, 200))
    assert not mirror.offer(copy)
    await mirror.done(copy)
    await mirror.drain(1)
    return pairs


class Slow:
    """A pace that has every piece waited for."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, int]] = []

    def wait_s(self, answer_bytes: int, piece_bytes: int) -> float:
        self.pieces.append((answer_bytes, piece_bytes))
        return WAIT_S


def test_a_flood_is_read_at_the_pace(flood: Chats, monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Slow()
    monkeypatch.setattr(mirroring, "ReadPace", lambda: pace)
    (canary,) = asyncio.run(mirrored(flood.url))
    assert canary.error == f"the answer has more than {LIMITS.side_bytes} bytes"
    sizes = [len(piece) for _, piece in canary.pieces]
    assert [size for _, size in pace.pieces] == sizes
    assert pace.pieces[-1][0] >= sum(sizes)
    assert all(later - at >= WAIT_S for (at, _), (later, _) in pairwise(canary.pieces))
    assert len(sizes) > 1
