"""The contracts of a reply are its names and types, whatever its values."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.contracts import shapes
from pytest_vllm_gates.contracts.checks import lines
from pytest_vllm_gates.contracts.types import ContractReply, Metric, Observed, load

PLAN = load()
JSON = "application/json"
EVENTS = "text/event-stream"


def reply(
    *bodies: Any, kind: str = JSON, status: int | None = 200, name: str = "chat"
) -> ContractReply:
    return ContractReply(name, status, kind, bodies)


def contract_lines(*replies: ContractReply) -> list[str]:
    """Return the lines of replies, without status and content type."""
    all_lines = lines(shapes.replies(replies, PLAN))
    return [
        line
        for line in all_lines
        if ": HTTP status: " not in line and ": content type: " not in line
    ]


def test_every_type_of_json_has_its_name() -> None:
    body: dict[str, Any] = {
        "a": None,
        "b": True,
        "c": 1,
        "d": 0.5,
        "e": "x",
        "f": [1, 0.5],
        "g": {"h": []},
    }
    assert contract_lines(reply(body)) == [
        "chat: a: null",
        "chat: b: boolean",
        "chat: c: integer",
        "chat: d: number",
        "chat: e: string",
        "chat: f: array",
        "chat: f[]: integer, number",
        "chat: g: object",
        "chat: g.h: array",
    ]


def test_replies_of_one_name_are_merged() -> None:
    assert contract_lines(
        reply({"a": "x"}), reply({"a": None, "b": 1}), reply({}, name="other")
    ) == [
        "chat: a: string, null",
        "chat: b: integer",
        "other: whole body: object",
    ]


def test_status_and_content_type_come_first() -> None:
    contracts = shapes.replies([reply({"choices": []}), reply({"error": ""}, status=400)], PLAN)
    assert lines(contracts)[:2] == [
        "chat: HTTP status: 200, 400",
        "chat: content type: application/json",
    ]


def test_bodies_without_json_and_missing_replies() -> None:
    page = ContractReply("chat", 502, "text/html", None, "<html>")
    assert lines(shapes.replies([page], PLAN)) == [
        "chat: HTTP status: 502",
        "chat: content type: text/html",
        "chat: whole body: no JSON",
    ]
    silent = ContractReply("chat", None, text="ConnectError")
    assert lines(shapes.replies([silent], PLAN)) == ["chat: HTTP status: no answer"]


@pytest.mark.parametrize(
    ("value", "term"),
    [
        ("NotFoundError", '"NotFoundError"'),
        ("chat.completion.chunk", '"chat.completion.chunk"'),
        (404, "404"),
        (True, "boolean"),
        ("", "string"),
        ("a: b, c", "string"),
        ("two\nlines", "string"),
        (None, "null"),
    ],
)
def test_a_constant_word_or_integer_is_pinned_by_value(value: Any, term: str) -> None:
    assert contract_lines(reply({"type": value})) == [f"chat: type: {term}"]


def test_first_and_usage_chunks_are_named_separately() -> None:
    first = {"choices": [{"delta": {"role": "assistant"}, "logprobs": None}]}
    middle = {"choices": [{"delta": {"content": "x"}, "finish_reason": None}]}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"total_tokens": 3}}
    assert contract_lines(reply(first, middle, last, usage, kind=EVENTS)) == [
        "chat: choices: array",
        "chat: choices[]: object",
        "chat: choices[].delta: object",
        "chat: choices[].delta.content: string",
        "chat: choices[].finish_reason: string",
        "chat, first chunk: choices: array",
        "chat, first chunk: choices[]: object",
        "chat, first chunk: choices[].delta: object",
        "chat, first chunk: choices[].delta.role: string",
        "chat, first chunk: choices[].logprobs: null",
        "chat, usage chunk: choices: array",
        "chat, usage chunk: usage: object",
        "chat, usage chunk: usage.total_tokens: integer",
    ]


def test_splitting_a_stream_does_not_change_contracts() -> None:
    def chunk(text: str, finish: str | None) -> dict[str, Any]:
        return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}

    cut = reply(chunk("a", None), chunk("b", "stop"), kind=EVENTS)
    uncut = reply(chunk("ab", "stop"), kind=EVENTS)
    assert contract_lines(cut) == contract_lines(uncut)


def test_the_keys_of_a_map_are_not_fields() -> None:
    logprobs = {"top_logprobs": [{" Paris": -0.5, ": a": -1.0}]}
    assert contract_lines(reply({"choices": [{"logprobs": logprobs}]}))[-1] == (
        "chat: choices[].logprobs.top_logprobs[]{}: number"
    )


def test_metrics_that_are_never_pinned_are_left_out() -> None:
    families = {
        "vllm:a_total": Metric("counter", ("engine", "model_name")),
        "vllm:a_created": Metric("gauge", ()),
        "python_info": Metric("gauge", ("version",)),
        "vllm:b": Metric("gauge", None),
    }
    assert lines(shapes.metrics(families, PLAN)) == [
        "vllm:a_total: counter, engine, model_name",
        "vllm:b: gauge, …",
    ]


def test_routes_have_their_methods() -> None:
    routes = {"/ping": frozenset({"POST", "GET"}), "/health": frozenset({"GET"})}
    observed = Observed(routes, True, None, (), (), "m")
    assert lines(shapes.routes(observed)) == ["/health: GET", "/ping: GET, POST"]


def test_messages_omit_the_alias_and_numbers() -> None:
    contract_reply = reply({"error": {"message": "m-1f2e takes 4096\n tokens"}}, name="too long")
    unknown_route = reply({"detail": "Not Found"}, name="unknown route")
    none = ContractReply("page", 502, "text/html", None, "<html>")
    silent = reply({"detail": [{"loc": ["body", 1]}, None], "code": 7}, name="without a word")
    assert list(shapes.messages([contract_reply, unknown_route, none, silent], "m-1f2e")) == [
        "too long: says: MODEL takes N tokens",
        "unknown route: says: Not Found",
    ]
