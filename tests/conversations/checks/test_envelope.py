"""An answer has a unique id, a time, and usage that adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conversations.exchanges import answer, exchange
from pytest_vllm_gates.client.answer import Exchange, Recording
from pytest_vllm_gates.conversations.checks import envelope

BODY: dict[str, Any] = {
    "id": "chatcmpl-a",
    "created": 1_795_000_000,
    "usage": {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30},
}


def came(question: str = "Why?", *, streamed: bool = False, **changes: Any) -> Exchange:
    """Return an exchange whose one answer has the body with these changes."""
    text = json.dumps(BODY | changes)
    piece = f"data: {text}\n\ndata: [DONE]\n\n" if streamed else text
    recording = Recording("", ((0.0, piece.encode()),))
    return exchange(
        answer(),
        request={"messages": [{"role": "user", "content": question}]},
        **{"stream" if streamed else "body": recording},
    )


def said(*exchanges: Exchange) -> list[str]:
    return [finding.says for finding in envelope.findings(exchanges)]


def usage(**changes: Any) -> dict[str, Any]:
    return {"usage": BODY["usage"] | changes}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"created": 0}, "created is 0: expected seconds since 1970"),
        ({"created": 1_795_000_000_000}, "created is 1795000000000: expected seconds since 1970"),
        ({"created": "now"}, None),
        (usage(total_tokens=31), "usage has 10 and 20 tokens, and 31 in all"),
        (usage(total_tokens=None), None),
        ({"usage": None}, None),
        (usage(prompt_tokens_details={"cached_tokens": 8}), None),
        (
            usage(prompt_tokens_details={"cached_tokens": 16}),
            "usage has 16 cached_tokens of 10 prompt_tokens",
        ),
        (
            usage(completion_tokens_details={"reasoning_tokens": 21}),
            "usage has 21 reasoning_tokens of 20 completion_tokens",
        ),
    ],
)
def test_time_and_usage(changes: dict[str, Any], says: str | None, streamed: bool) -> None:
    mode = "streamed" if streamed else "whole"
    assert said(came(streamed=streamed, **changes)) == ([f"{mode}: {says}"] if says else [])


def test_an_id_belongs_to_one_request() -> None:
    assert said(came("a"), came("b", id="chatcmpl-b")) == []
    assert said(came("a"), came("a")) == [], "a cache may give the same answer again"
    assert said(came("a"), came("b"), came("c")) == [
        "its id 'chatcmpl-a' is also in 2 other requests' answers"
    ]


def test_a_missing_answer_has_no_finding() -> None:
    broken = exchange(answer(), body=Recording("", ((0.0, b"{"),)))
    assert said(exchange(answer()), broken) == []
