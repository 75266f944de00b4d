"""A recorded stream shows when each text arrived, for any bytes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from conversations.exchanges import exchange
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.conversations.checks.stream_pieces import (
    MOST_PIECES,
    first_faulty_stream,
    pieces,
)
from pytest_vllm_gates.outcomes import Finding


def event(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


def test_each_piece_has_its_time_and_text() -> None:
    call = {"index": 0, "function": {"arguments": '{"a"'}}
    stream = [
        (0.1, event(role="assistant")),
        (0.2, event(reasoning="Hm")),
        (0.3, event(content="Par")[:20]),
        (0.4, event(content="Par")[20:] + event(content="is").replace(b"\n", b"\r\n")),
        (0.5, event(tool_calls=[call])),
        (0.6, b"data: [DONE]\n\n"),
    ]
    assert pieces(Recording("text/event-stream", tuple(stream))) == [
        [0.2, "Hm"], [0.4, "Paris"], [0.5, '{"a"'],
    ]  # fmt: skip


def test_events_that_are_not_a_chats_have_no_text() -> None:
    junk = [b"data: 1\n\n", b'data: {"choices": [{"delta": [3]}]}\n\n', b"\xff\n\n", b"x: y\n\n"]
    junk.append(b'data: {"choices": [{"delta": {"tool_calls": [{"function": null}]}}]}\n\n')
    assert pieces(Recording(pieces=tuple((0.0, data) for data in junk))) == []


def test_a_long_stream_is_cut() -> None:
    stream = tuple((float(at), event(content="x" * 500)) for at in range(2 * MOST_PIECES))
    timeline = pieces(Recording(pieces=stream))
    assert (len(timeline), max(len(text) for _, text in timeline)) == (MOST_PIECES, 80)


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_bytes_can_be_read(some: list[bytes]) -> None:
    assert all(text for _, text in pieces(Recording(pieces=tuple((0.0, data) for data in some))))


def test_the_stream_of_the_first_finding_is_evidence() -> None:
    stream = Recording(pieces=((0.2, event(content="Hm")),))
    well, wrong, worse, silent = (
        exchange(tools=tools, stream=recorded)
        for tools, recorded in (
            ("undeclared", stream), ("auto", stream), ("named", stream), ("required", Recording()),
        )
    )  # fmt: skip
    findings = [Finding(faulty.case, "it is cut") for faulty in (wrong, worse)]
    assert first_faulty_stream(findings, [well, wrong, worse]) == [
        {"what": wrong.cell.name, "pieces": [[0.2, "Hm"]]},
    ]
    assert first_faulty_stream([Finding(silent.case, "it is cut")], [well, silent]) == []
    assert first_faulty_stream([], [well]) == []
