"""No answer of any form ends a check of conversations or dialects with an exception.

Each example is an answer as a right server sends it, in which values of the JSON are replaced,
removed or repeated.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from conversations.checks.streams import CALLS, CHUNKS, USAGE, chunk, recording
from conversations.exchanges import answer
from dialects.made import ANSWER, MESSAGE, RESPONSE, dialogues, message_events, response_events
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.client.untyped import MISREADINGS
from pytest_vllm_gates.conversations import client_types
from pytest_vllm_gates.conversations.checks import choices, chunks, events, stream_pieces
from pytest_vllm_gates.dialects import checks, identity, strict
from pytest_vllm_gates.dialects.types import Reply, events_of
from pytest_vllm_gates.dialects.yardstick import chat_answer, near_tie

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 7, 2**63, 10**40, 0.5, float("inf"), float("nan")])
    | st.sampled_from(["", "a", "{", "{}", "[DONE]", "assistant", "tool_use", "\ud83e", "🦀"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "id", "index", "text", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)
CHANGES = ("replace", "remove", "repeat")
SCORED_CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": "a", "reasoning": None, "tool_calls": None},
    "delta": {"role": "assistant", "content": "a"},
    "finish_reason": "stop",
    "token_ids": [7],
    "logprobs": {
        "content": [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -3.0}],
            }
        ]
    },
}
SCORED = {**CHUNKS[0], "choices": [SCORED_CHOICE]}
COMPLETION = {
    "id": "c",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": "a", "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 9},
}
THREE = [
    *(chunk({"role": "assistant"}, index=index) for index in (0, 1, 2)),
    *(chunk({"content": "a"}, "stop", index=index) for index in (2, 1, 0)),
    USAGE,
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value within a JSON value."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def changed(draw: st.DrawFn, right: Any) -> Any:
    """Return a copy of a JSON value with one to three changes."""
    value = copy.deepcopy(right)
    for _ in range(draw(st.integers(1, 3))):
        paths = [*places(value)]
        if not paths:
            break
        *outer, last = draw(st.sampled_from(paths))
        parent = value
        for key in outer:
            parent = parent[key]
        change = draw(st.sampled_from(CHANGES))
        if change == "remove":
            del parent[last]
        elif change == "repeat" and isinstance(parent, list):
            parent.insert(0, copy.deepcopy(parent[last]))
        else:
            parent[last] = draw(VALUES)
    return value


def tried(check: Callable[[Any], object], right: Any) -> None:
    """Call a check with changed copies of a right answer."""

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changed(right))
    def run(value: Any) -> None:
        check(value)

    run()


def judge_chunks(value: Any) -> None:
    data = "".join(f"data: {json.dumps(each)}\n\n" for each in value)
    stream = recording(f"{data}data: [DONE]\n\n".encode())
    read = events.chunks(stream)
    for count in (1, 3):
        assert all(isinstance(sentence, str) for sentence in chunks.faults(read, count))
    list(chunks.unrequested_usage(read))
    list(events.faults(stream))
    list(client_types.chunk_faults(read))
    list(client_types.assembly_faults(read, answer("a")))
    stream_pieces.pieces(stream)


@pytest.mark.parametrize("right", [CHUNKS, CALLS, THREE, [SCORED, USAGE]], ids=range(4))
def test_chunks_of_any_form_are_judged(right: Any) -> None:
    tried(judge_chunks, right)


def judge_choices(value: Any) -> None:
    read: list[list[choices.ScoredChoice]] = []
    for take in (choices.of_whole, lambda body: choices.of_stream([body])):
        try:
            read.append(take(value))
        except MISREADINGS:  # `reading` makes it a fault of the server
            return
    whole, streamed = read
    for each in (*whole, *streamed):
        list(choices.unaligned(each))
    for first, second in zip(whole, streamed, strict=False):
        list(choices.scored_otherwise(first, second))
    list(choices.miscounted(whole, 1))
    list(choices.mixed(whole, ["a"]))
    list(choices.swapped(whole, streamed))


def test_choices_of_any_form_are_judged() -> None:
    tried(judge_choices, SCORED)


def judge_yardstick(value: Any) -> None:
    try:
        with reading("the answer"):
            chat = chat_answer(value)
            near_tie(value)
    except ValueError:
        return
    list(checks.meaning_findings(dialogues(_reply("responses", "whole", RESPONSE), chat=chat)))


def test_yardsticks_of_any_form_are_read() -> None:
    tried(judge_yardstick, SCORED)


@pytest.mark.parametrize(
    ("dialect", "right"),
    [("responses", RESPONSE), ("messages", MESSAGE), ("completions", COMPLETION)],
)
def test_whole_answers_of_any_form_are_judged(dialect: str, right: Any) -> None:
    def judge(value: Any) -> None:
        judge_reply(_reply(dialect, "whole", value))

    tried(judge, right)


@pytest.mark.parametrize(
    ("dialect", "data", "right"),
    [
        ("responses", response_events(), RESPONSE),
        ("messages", message_events(), MESSAGE),
        ("completions", [COMPLETION, COMPLETION], COMPLETION),
    ],
)
def test_streams_of_any_form_are_judged(dialect: str, data: Any, right: Any) -> None:
    def judge(value: Any) -> None:
        read, done = events_of(_stream(value))
        judge_reply(replace(_reply(dialect, "stream", right), events=read, done=done))

    tried(judge, data)


def judge_reply(reply: Reply) -> None:
    """Call every check of a reply."""
    other = _reply(reply.dialect, "whole" if reply.mode == "stream" else "stream", RESPONSE)
    heard = dialogues(reply, other, limit=9, rendered={"/render": (1, 2)}, counts={"/render": 2})
    sentences = [
        *strict.faults(reply),
        *checks.event_faults(reply),
        *identity.faults(reply, ["m"]),
        *(finding.says for finding in checks.stream_findings(heard)),
        *(finding.says for finding in checks.meaning_findings(heard)),
        *(finding.says for finding in checks.limit_findings(heard)),
        *(finding.says for finding in checks.token_findings(heard)),
    ]
    checks.unread(reply)
    assert all(isinstance(sentence, str) for sentence in sentences)
    assert reply.error
    assert ANSWER.usage


def _reply(dialect: str, mode: str, body: Any) -> Reply:
    record = body if isinstance(body, dict) else {}
    return Reply(
        dialect=dialect, mode=mode, case="plain", request={}, status=200, body=record,
        assembled=record,
    )  # fmt: skip


def _stream(value: Any) -> bytes:
    return "".join(
        f"event: {each.get('type') if isinstance(each, dict) else ''}\ndata: {json.dumps(each)}\n\n"
        for each in value
    ).encode("utf-8", "replace")
