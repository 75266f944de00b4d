"""JSON over a socket, each message with its length before it, bounded in size and time."""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

HEAD = struct.Struct(">Q")
PIECE_BYTES = 2**16


class TooLarge(Exception):  # noqa: N818 - not an error of this program
    """A message is larger than allowed."""


def send(connection: socket.socket, message: Any) -> None:
    """Send one message; raises `OSError` if the other end is gone or does not read in time."""
    data = json.dumps(message, default=str).encode("ascii")
    connection.sendall(HEAD.pack(len(data)) + data)


def receive(
    connection: socket.socket, most_bytes: int, deadline: float | None = None
) -> Any | None:
    """Return the next message, None at the end.

    Raises `TimeoutError` after `deadline` (of `time.monotonic`), `TooLarge` for a message of more
    than `most_bytes`, `ValueError` for one that is not JSON.
    """
    head = _exactly(connection, HEAD.size, deadline)
    if head is None:
        return None
    (size,) = HEAD.unpack(head)
    if size > most_bytes:
        raise TooLarge(size)
    data = _exactly(connection, size, deadline)
    return None if data is None else json.loads(data)


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytearray | None:
    data = bytearray()
    while len(data) < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        try:
            piece = connection.recv(min(PIECE_BYTES, size - len(data)))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return data
