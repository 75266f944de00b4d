"""Messages between master and workers of a load: lists, numbers, text and bytes as msgpack.

A worker proves that it knows the secret (ADMIT). Once it has its users, it receives their requests
(PART, then DEAL). When it is READY, the master sends the start time (BEGIN). After the load it
sends the responses (RAWS, then DONE), or the error (FAILED).
"""

from __future__ import annotations

import hmac
import itertools
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.load.types import PlannedRequest, RawResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ADMIT, PART, DEAL, READY, BEGIN, RAWS, DONE, FAILED = (
    f"gates-{name}"
    for name in ("admit", "part", "deal", "ready", "begin", "raws", "done", "failed")
)
DEFAULT_PORT = 5557
"""Locust's own."""
SECRET_VARIABLE = "GATES_LOAD_SECRET"  # noqa: S105 - where it is, not what it is
LEAST_SECRET = 16
"""Characters; a secret that can be guessed gives anybody the server's key."""
SLICE_BYTES = 2**22
Row = list[Any]


def proof(secret: str, client_id: str) -> str:
    """Return the proof that a worker knows the secret, bound to its client id."""
    return hmac.new(secret.encode(), client_id.encode(), "sha256").hexdigest()


def address(value: str) -> tuple[str, int]:
    """Return the host and port of HOST[:PORT]; raises `ValueError` for any other form."""
    host, _, port = value.rpartition(":") if ":" in value else (value, "", str(DEFAULT_PORT))
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"{value!r} is not HOST:PORT")
    return host, int(port)


def dealt(
    requests: Sequence[PlannedRequest], users: Mapping[str, int]
) -> dict[str, list[PlannedRequest]]:
    """Return each worker's requests: dealt out in turn, in proportion to its users."""
    rounds = range(max(users.values()))
    turns = [name for number in rounds for name in users if users[name] > number]
    parts: dict[str, list[PlannedRequest]] = {name: [] for name in users}
    for request, name in zip(requests, itertools.cycle(turns), strict=False):
        parts[name].append(request)
    return parts


def planned_rows(requests: Iterable[PlannedRequest]) -> Iterator[list[Row]]:
    """Yield requests as rows of a message, in slices."""
    return _sliced(
        ([request.name, request.path, request.body, request.at_s], len(request.body))
        for request in requests
    )


def planned(row: Row) -> PlannedRequest:
    """Return the request of a row."""
    return PlannedRequest(*row)


def raw_rows(raws: Iterable[RawResponse]) -> Iterator[list[Row]]:
    """Yield raw responses as rows of a message, in slices."""
    return _sliced(
        (
            [
                response.name, response.intended_s, response.sent_s, response.ended_s,
                response.answer, response.arrivals, response.lag_s, response.error,
                response.begun_s,
            ],
            len(response.answer) + 16 * len(response.arrivals),
        )
        for response in raws
    )  # fmt: skip


def raw(row: Row) -> RawResponse:
    """Return the raw response of a row."""
    name, intended_s, sent_s, ended_s, answer, arrivals, lag_s, error, begun_s = row
    times = tuple((at, size) for at, size in arrivals)
    return RawResponse(name, intended_s, sent_s, ended_s, answer, times, lag_s, error, begun_s)


def _sliced(rows: Iterable[tuple[Row, int]]) -> Iterator[list[Row]]:
    """Yield the rows in lists of about `SLICE_BYTES`, going by each row's bytes."""
    piece: list[Row] = []
    size = 0
    for row, bytes_ in rows:
        piece.append(row)
        size += bytes_
        if size >= SLICE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
