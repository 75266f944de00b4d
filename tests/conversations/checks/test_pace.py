"""A stream that is buffered, stalls or bursts differs from one that is only slow."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.conversations.checks.pace import faults, undecided
from pytest_vllm_gates.conversations.pace import TimedStream

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSY = tuple(number * 0.01 for number in range(2000))


def stream(gaps: Sequence[float], **fields: Any) -> TimedStream:
    """Return a stream whose pieces came after these gaps, the first counted from the request."""
    defaults: dict[str, Any] = {
        "what": "a long answer",
        "tokens": len(gaps),
        "times": tuple(itertools.accumulate(gaps)),
        "sizes": (5,) * len(gaps),
        "beats": BUSY,
    }
    return TimedStream(**(defaults | fields))


STEADY = [0.1] + [0.02] * 99


@pytest.mark.parametrize(
    "timed_stream",
    [
        stream(STEADY),
        stream([5.0] + [0.02] * 99),
        stream([gap * 50 for gap in STEADY]),
        stream(STEADY[:10], tokens=100),
        stream([0.1, 0.9] * 50),
        stream([0.1] + [0.02] * 50 + [0.4] + [0.02] * 48),
        stream([0.1] + [0.0001] * 18),
        stream([], tokens=50),
        stream([0.1, 0.5], sizes=(900, 50), tokens=200),
        stream([0.1, 0.5, 0.5], sizes=(300, 300, 300), tokens=200),
    ],
    ids=[
        "steady", "a slow first token", "a slow machine", "ten tokens a chunk", "uneven",
        "a short pause", "too short to judge", "nothing", "a big first chunk", "few big chunks",
    ],
)  # fmt: skip
def test_a_steady_stream_has_no_fault(timed_stream: TimedStream) -> None:
    assert faults(timed_stream) == []


@pytest.mark.parametrize(
    ("timed_stream", "sentence"),
    [
        (
            stream([2.0] + [0.0005] * 99),
            "100 tokens came within 50 ms, 2000 ms after the request: something on the way buffers "
            "the whole stream",
        ),
        (stream([2.0], tokens=100), "100 tokens came within 0 ms, 2000 ms after the request"),
        (
            stream([0.1] + [0.02] * 50 + [3.0] + [0.02] * 48),
            "the stream stopped for 3.0 s after 51 chunks; its median gap is 20 ms",
        ),
        (
            stream([0.1] + [0.02] * 99, sizes=(1,) * 99 + (5000,)),
            "5000 of 5099 characters came in one chunk, 2080 ms after the request: the user sees "
            "nothing until everything has arrived",
        ),
    ],
    ids=["buffered", "in one piece", "a stall", "a late burst"],
)
def test_buffered_stalled_and_burst_streams_are_faults(
    timed_stream: TimedStream, sentence: str
) -> None:
    (fault,) = faults(timed_stream)
    assert fault.startswith(sentence)


def test_a_stall_is_long_and_longer_than_usual_gaps() -> None:
    assert faults(stream([0.1] + [0.02] * 50 + [0.9] + [0.02] * 48)) == []
    assert faults(stream([0.5] * 50 + [3.0] + [0.5] * 48)) == []


HELD = [2.0] + [0.0005] * 99


def test_a_silent_machine_is_not_a_buffered_stream() -> None:
    busy = stream(HELD, beats=())
    assert undecided([busy, busy])
    assert not undecided([busy, stream(HELD)])
    assert not undecided([stream(STEADY, beats=())])


def test_answers_in_a_part_of_the_gap_are_undecided() -> None:
    assert undecided([stream(HELD, beats=(0.5, 0.6, 0.7, 0.8, 0.9, 1.99))])
    assert not undecided([stream(HELD, beats=(0.2, 0.5, 0.9, 1.2, 1.6))])
    assert undecided([stream(HELD, beats=tuple(3.0 + number / 10 for number in range(20)))])


def test_evidence_has_times_in_milliseconds() -> None:
    evidence = stream([0.1, 0.25], beats=(0.05,)).as_evidence()
    assert (evidence["times_ms"], evidence["beats_ms"]) == ([100.0, 350.0], [50.0])
    assert (evidence["tokens"], evidence["sizes"]) == (2, (5, 5))
