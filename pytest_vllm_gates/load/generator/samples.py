"""Selects the requests of a load to record: those that failed or stalled longest.

A load has thousands of requests, most of them alike.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.exchange import Sent, redacted_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.load.types import PlannedRequest, RawResponse

KEPT = 6
"""How many failed requests are kept, and as many of the others."""

HEAD_END = b"\r\n\r\n"
LINE_END = b"\r\n"


def worth_keeping(raws: Iterable[RawResponse]) -> list[RawResponse]:
    """Return the first requests that failed, and those whose answers stalled longest."""
    failed: list[RawResponse] = []
    others: list[tuple[float, RawResponse]] = []
    for raw in raws:
        if raw.error or b" 200 " not in raw.answer[:16]:
            failed.append(raw)
        else:
            times = [at for at, _ in raw.arrivals]
            gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
            others.append((max(gaps, default=0.0), raw))
    others.sort(key=lambda pair: -pair[0])
    return [*failed[:KEPT], *(raw for _, raw in others[:KEPT])]


def sent(raw: RawResponse, request: PlannedRequest, headers: Mapping[str, str], root: str) -> Sent:
    """Return the recorded exchange of a load's request; `root`: the path of the server's root."""
    head, separator, _ = raw.answer.partition(HEAD_END)
    status, *lines = head.decode("latin-1").split("\r\n")
    words = status.split(" ")
    answered = bool(separator) and len(words) > 1 and words[1].isdecimal()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line) if answered else {}
    chunked = any(
        name.lower() == "transfer-encoding" and "chunked" in value.lower()
        for name, value in fields.items()
    )
    begun = raw.intended_s if raw.sent_s is None else raw.sent_s
    spans = _spans(raw.answer, len(head) + len(HEAD_END), chunked=chunked) if answered else ()
    return Sent(
        method="POST",
        path=request.path.removeprefix(root),
        headers=redacted_headers(headers),
        body=request.body,
        name=f"load {raw.name}",
        status=int(words[1]) if answered else None,
        response_headers=redacted_headers(fields),
        pieces=tuple((at - begun, piece) for at, piece in _timed(raw, spans)),
        error=raw.error,
    )


def _spans(answer: bytes, start: int, *, chunked: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of each piece of the body in an answer, without RFC 9112's framing."""
    if not chunked:
        yield start, len(answer)
        return
    while (end := answer.find(LINE_END, start)) >= 0:
        try:
            size = int(answer[start:end].partition(b";")[0], 16)
        except ValueError:
            break
        if size == 0:
            return
        yield end + len(LINE_END), min(end + len(LINE_END) + size, len(answer))
        start = end + size + 2 * len(LINE_END)


def _timed(raw: RawResponse, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[float, bytes]]:
    """Yield the body in the pieces in which it was read, with the time of each."""
    arrivals: Sequence[tuple[float, int]] = raw.arrivals
    place = 0
    for start, end in spans:
        at = start
        while at < end:
            while place < len(arrivals) - 1 and arrivals[place][1] <= at:
                place += 1
            time_s, size = arrivals[place] if arrivals else (raw.ended_s, end)
            upto = min(end, size) if size > at else end
            yield time_s, raw.answer[at:upto]
            at = upto
