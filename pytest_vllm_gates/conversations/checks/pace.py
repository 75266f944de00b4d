"""Checks from its arrival times that a stream arrives as it is generated.

A person notices three faults: nothing comes until everything does, the text stops in the middle, or
it comes in one late burst. A fault counts only if every one of several streams shows it (once may
be the machine) and the server answered other requests meanwhile.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.conversations.pace import TimedStream

FEWEST_TOKENS = 20
SPREAD_SHARE = 0.1
"""The minimum share of the time since the request in which a stream's text arrives."""
STALL_S = 1.0
STALL_GAPS = 25.0
BURST_SHARE = 0.9
SILENT_SHARE = 0.5
"""The share of a stream's longest gap in which the server may have answered nothing at all: a
buffered stream does not keep it from answering, a busy machine does."""


def faults(stream: TimedStream) -> list[str]:
    """Return the faults in the arrival of one stream; none if it is too short to judge."""
    if stream.tokens < FEWEST_TOKENS or not stream.times:
        return []
    return [fault for check in (_at_once, _stall, _burst) for fault in check(stream)]


def undecided(streams: Sequence[TimedStream]) -> bool:
    """Return whether every stream looks buffered and the server was too busy to be blamed."""
    return all(faults(stream) and not _answering(stream) for stream in streams)


def _answering(stream: TimedStream) -> bool:
    """Return whether the server answered other requests during the stream's longest gap."""
    stops = [0.0, *stream.times]
    gaps = [(later - earlier, earlier) for earlier, later in itertools.pairwise(stops)]
    length, start = max(gaps)
    return stream.silence_between(start, start + length) <= SILENT_SHARE * length


def _at_once(stream: TimedStream) -> Iterator[str]:
    first, last = stream.times[0], stream.times[-1]
    if last - first <= SPREAD_SHARE * last:
        yield (
            f"{stream.tokens} tokens came within {(last - first) * 1000:.0f} ms, "
            f"{first * 1000:.0f} ms after the request: something on the way buffers the "
            "whole stream"
        )


def _stall(stream: TimedStream) -> Iterator[str]:
    gaps = [later - earlier for earlier, later in itertools.pairwise(stream.times)]
    if not gaps:
        return
    longest, median = max(gaps), statistics.median(gaps)
    if longest >= STALL_S and longest >= STALL_GAPS * median:
        at = gaps.index(longest) + 1
        yield (
            f"the stream stopped for {longest:.1f} s after {at} chunks; its median gap is "
            f"{median * 1000:.0f} ms"
        )


def _burst(stream: TimedStream) -> Iterator[str]:
    """Yield a sentence if most text of a stream came late and in one piece."""
    total, biggest = sum(stream.sizes), max(stream.sizes)
    at = stream.times[stream.sizes.index(biggest)]
    late = at > stream.times[0] + 0.5 * (stream.times[-1] - stream.times[0])
    if biggest >= BURST_SHARE * total and late:
        yield (
            f"{biggest} of {total} characters came in one chunk, {at * 1000:.0f} ms after the "
            "request: the user sees nothing until everything has arrived"
        )
