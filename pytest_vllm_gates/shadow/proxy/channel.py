"""Messages between the proxy and the process that judges: a length, and a pickled value.

Both ends belong to this package, in one interpreter; no data of a server or client is unpickled.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections import Counter
    from collections.abc import Sequence

    from pytest_vllm_gates.shadow.headers import Header

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class CopyBegun:
    """To the mirror: a request to send to the canary as well."""

    number: int
    method: str
    path: str
    headers: Sequence[Header]
    body: bytes


@dataclass(frozen=True)
class StableAnswered:
    """To the mirror: how the stable server's answer to a copied request ended."""

    number: int
    status: int | None = None
    headers: Sequence[Header] = ()
    pieces: Sequence[tuple[float, bytes]] = ()
    error: str = ""
    cut_bytes: int = 0
    hung_up: bool = False
    """Whether the client hung up, so that there is not a pair."""


@dataclass(frozen=True)
class Passed:
    """To the mirror: how many requests were counted, by outcome, since the last such message."""

    passed: int
    failed: int
    not_mirrored: Counter[str]


@dataclass(frozen=True)
class Ending:
    """To the mirror: clients get no more answers; it has `left_s` to end. From it: it is done."""

    left_s: float = 0.0


@dataclass(frozen=True)
class Ready:
    """From the mirror: controllers can send requests to this URL."""

    control_url: str


@dataclass(frozen=True)
class Failed:
    """From the mirror: it cannot start."""

    says: str


@dataclass(frozen=True)
class LastDocument:
    """From the mirror, at the end: the whole document."""

    document: dict[str, Any]


def frame(message: object) -> bytes:
    """Return a message in the form that is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> Any:
    """Return the next message; raises `asyncio.IncompleteReadError` after the last."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - of the other end alone
