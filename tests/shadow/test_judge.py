"""Each kind is found in an answer that breaks it, and in no correct one, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.judge import PairJudge
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement

SETTINGS = shadow_settings.load()
JUDGE = PairJudge(SETTINGS, lambda _: ("<|im_end|>",))
CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def request(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "How is it?"}], **more}


def call(name: str = "get_weather", arguments: str = '{"city": "Oslo"}') -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def whole(content: str | None = "It is cold.", finish: str = "stop", **more: Any) -> dict[str, Any]:
    usage = more.pop("usage", USAGE)
    message = {"role": "assistant", "content": content, **more}
    return {
        "id": "a", "object": "chat.completion", "created": 0, "model": "m", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }  # fmt: skip


def sent(
    asked: dict[str, Any], answer: Any, status: int | None = 200, path: str = CHAT, **more: Any
) -> Sent:
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    kind = "text/event-stream" if asked.get("stream") else "application/json"
    pieces = tuple(
        (0.1 * number, piece) for number, piece in enumerate(data.splitlines(keepends=True), 1)
    )
    return Sent("POST", path, {}, json.dumps(asked).encode(), status=status,
                response_headers={"Content-Type": kind}, pieces=pieces, **more)  # fmt: skip


def side(asked: dict[str, Any], answer: Any, **more: Any) -> SideJudgement:
    """Judge an answer as the canary's, beside a correct one of the stable server."""
    right = sent(request(), whole())
    return JUDGE.judge(
        Sent(**{**right.__dict__, "body": json.dumps(asked).encode()})
        if not asked.get("stream") else sent(asked, stream("It")),
        sent(asked, answer, **more),
    ).canary  # fmt: skip


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more,
    }  # fmt: skip


def stream(*texts: str, end: bytes = b"data: [DONE]\n\n") -> bytes:
    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": text}) for text in texts]
    chunks.append(chunk({}, "stop"))
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks) + end


def test_right_answers_break_nothing() -> None:
    assert side(request(), whole()).broken == {}
    assert side(request(stream=True), stream("It", " is", " cold.")).broken == {}
    assert side(request(tools=[TOOL]), whole(None, "tool_calls", tool_calls=[call()])).broken == {}


JSON = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object",
        "required": ["a"]}}}  # fmt: skip
BROKEN: list[tuple[str, dict[str, Any], Any]] = [
    ("framing", {}, b"<html>"),
    ("framing", {}, {"choices": []}),
    ("framing", {"stream": True}, stream("It", end=b"")),
    ("framing", {"stream": True}, stream("It").replace(b'"id": "a"', b'"id": "b"', 1)),
    ("finish_reason", {}, whole(finish="tool_calls")),
    ("finish_reason", {}, whole(finish="done")),
    ("finish_reason", {"tools": [TOOL]}, whole(None, "stop", tool_calls=[call()])),
    ("markers", {}, whole("It is cold.<|im_end|>")),
    ("json", {"response_format": JSON}, whole("It is cold.")),
    ("json", {"response_format": {"type": "json_object"}}, whole('{"a": 1')),
    ("schema", {"response_format": JSON}, whole('{"b": 1}')),
    ("forced_call", {"tools": [TOOL], "tool_choice": "required"}, whole()),
    (
        "forced_call", {"tools": [TOOL], "tool_choice": "required"},
        whole(None, "tool_calls", tool_calls=[call(arguments="{")]),
    ),
    ("call", {"tools": [TOOL]}, whole(None, "tool_calls", tool_calls=[call("other")])),
    ("call", {"tools": [TOOL]}, whole(None, "tool_calls", tool_calls=[call(arguments="{")])),
    ("stop", {"stop": ["cold"]}, whole()),
    ("usage", {"max_tokens": 3}, whole()),
    ("usage", {}, whole(usage=None)),
    ("empty", {}, whole("")),
    ("nonsense", {}, whole("!" * 40)),
    ("nonsense", {"stream": True}, stream("It", " is \ufffd cold")),
    ("refusal", {}, whole("I\u2019m sorry, but I can\u2019t help with that.")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "more", "answer"), BROKEN, ids=[f"{kind}-{n}" for n, (kind, _, _) in enumerate(BROKEN)]
)
def test_a_kind_is_seen_in_an_answer_that_breaks_it(
    kind: str, more: dict[str, Any], answer: Any
) -> None:
    broken = side(request(**more), answer).broken
    assert kind in broken, broken
    assert set(broken) <= {kind, "empty", "nonsense"}


def test_every_kind_of_the_file_has_its_test() -> None:
    assert {kind for kind, _, _ in BROKEN} | {"unanswered", "refused"} == set(SETTINGS.kinds)


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, whole("It", "length")),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}},
         whole(None, "stop", tool_calls=[call()])),
        ({"response_format": JSON}, whole('{"a"', "length")),
        ({"stop": ["cold"], "include_stop_str_in_output": True}, whole()),
        ({"max_tokens": 3, "n": 2}, whole()),
        ({"messages": [{"role": "user", "content": "Say <|im_end|>"}]}, whole("<|im_end|> it is")),
        ({"max_tokens": 4000}, whole(finish="length")),
    ],
)  # fmt: skip
def test_what_a_right_server_may_answer_is_not_a_fault(more: dict[str, Any], answer: Any) -> None:
    hard = set(side(request(**more), answer).broken) & set(SETTINGS.hard)
    assert hard == set()


@pytest.mark.parametrize(
    ("status", "more", "kind"),
    [
        (None, {"error": "no connection"}, "unanswered"),
        (200, {"error": "the answer has more than 10 bytes", "cut_bytes": 5}, "unanswered"),
        (503, {}, "unanswered"),
        (429, {}, "unanswered"),
        (404, {}, "refused"),
    ],
)
def test_no_answer_is_a_failure_of_its_kind(
    status: int | None, more: dict[str, Any], kind: str
) -> None:
    assert [*side(request(), whole(), status=status, **more).broken] == [kind]


def test_what_the_stable_server_refuses_is_not_judged() -> None:
    judged = JUDGE.judge(sent(request(), {}, 400), sent(request(), whole()))
    assert judged.left_out == "the stable server answers 400"


def test_a_refusal_of_what_the_stable_server_could_not_answer_is_no_failure() -> None:
    judged = JUDGE.judge(sent(request(), {}, 500), sent(request(), {}, 400))
    assert [*judged.stable.broken] == ["unanswered"]
    assert judged.canary.broken == {}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"messages": 3}', b'{"tools": [3], "stop": 5, "stream": "x"}',
             b'{"tools": [{"function": 3}], "tool_choice": {"a": 1}, "response_format": 5}']
)  # fmt: skip
@pytest.mark.parametrize("answer", [b"", b"null", b"[]", b'{"choices": [3]}', b"data: 3\n\n",
                                    b'{"choices": [{"message": {"tool_calls": 5}}]}'])  # fmt: skip
def test_no_request_and_no_answer_ends_the_judging(body: bytes, answer: bytes) -> None:
    made = Sent("POST", CHAT, {}, body, status=200, pieces=((0.1, answer),))
    assert isinstance(JUDGE.judge(made, made), PairJudgement)


def test_times_are_those_of_the_pieces_with_text() -> None:
    figures = side(request(stream=True), stream("It", " is", " cold.")).figures
    # Every other line of the stream is empty: the role comes at 0.1 s, the words from 0.3 s on.
    assert figures["ttft_s"] == pytest.approx(0.3)
    assert figures["itl_s"] == pytest.approx(0.2)
    assert side(request(), whole()).figures == {"tokens": 4, "whole_s": pytest.approx(0.1)}


def test_greedy_answers_are_compared() -> None:
    asked = request(temperature=0)
    same = JUDGE.judge(sent(asked, whole()), sent(asked, whole()))
    assert (same.same, same.parts_at) == (True, None)
    other = JUDGE.judge(sent(asked, whole("It is cold.")), sent(asked, whole("It is warm.")))
    assert (other.same, other.parts_at) == (False, 7)
    assert other.parted == ("m", "\nIt is cold.", "\nIt is warm.")
    drawn = JUDGE.judge(sent(request(), whole()), sent(request(), whole()))
    assert (drawn.same, drawn.parts_at) == (None, None)


MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "It is cold."}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}  # fmt: skip
RESPONSE = {
    "id": "r", "object": "response", "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "It is cold."}]}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}  # fmt: skip
COMPLETION = {
    "id": "c", "object": "text_completion", "usage": USAGE,
    "choices": [{"index": 0, "text": "It is cold.", "finish_reason": "stop"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "answer"),
    [("/v1/messages", MESSAGE), ("/v1/responses", RESPONSE), ("/v1/completions", COMPLETION)],
)
def test_other_dialects_are_read(path: str, answer: dict[str, Any]) -> None:
    right = sent(request(), answer, path=path)
    leaking = sent(request(), json.loads(json.dumps(answer).replace("cold", "<|im_end|>")),
                   path=path)  # fmt: skip
    assert JUDGE.judge(right, right).stable.broken == {}
    assert JUDGE.judge(right, leaking).canary_only[0] == "markers"


def test_a_stream_of_completions_is_put_together() -> None:
    asked = request(stream=True)
    parts = [{**COMPLETION, "choices": [{"index": 0, "text": text, "finish_reason": finish}]}
             for text, finish in (("It <|im", None), ("_end|>", "stop"))]  # fmt: skip
    data = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts)
    pair = (sent(asked, data + b"data: [DONE]\n\n", path="/v1/completions"),) * 2
    assert "markers" in JUDGE.judge(*pair).canary.broken
