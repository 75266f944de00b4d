"""A refusal has status 4xx, and an `error.message` in the form of its API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vllm_gates.dialects import refusals
from pytest_vllm_gates.dialects.refusals import DialectRefusal
from pytest_vllm_gates.outcomes import Case

OPENAI = {"error": {"message": "no such model", "type": "NotFoundError", "code": 404}}
ANTHROPIC = {"type": "error", "error": {"type": "not_found_error", "message": "no such model"}}


def refusal(
    body: Any, *, dialect: str = "chat", status: int = 404, kind: str = "application/json"
) -> DialectRefusal:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return DialectRefusal(Case("x"), dialect, status, kind, data)


@pytest.mark.parametrize(
    "right",
    [
        refusal(OPENAI),
        refusal(OPENAI, dialect="responses", status=422, kind="application/json; charset=utf-8"),
        refusal(ANTHROPIC, dialect="messages"),
        refusal({**OPENAI, "type": "error"}, dialect="completions"),
    ],
)
def test_right_refusals_have_no_fault(right: DialectRefusal) -> None:
    assert list(refusals.faults(right)) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (refusal(OPENAI, status=200), "answered with 200, which a client reads as an answer"),
        (refusal(OPENAI, status=500), "answered with 500, which a client reads as a server error"),
        (refusal(OPENAI, kind="text/event-stream"), "is text/event-stream, not application/json"),
        (refusal(OPENAI, kind=""), "is without a content type"),
        (refusal({"error": "no such model"}), "has no error.message"),
        (refusal({"error": {"message": " "}}), "has no error.message"),
        (refusal({"detail": "no such model"}), "has no error.message"),
        (refusal([OPENAI]), "has no error.message"),
        (refusal(b"no such model", kind="text/plain"), "is text/plain"),
        (refusal(OPENAI, dialect="messages"), "and Anthropic's is 'error'"),
    ],
)
def test_a_fault_of_a_refusal_is_reported(wrong: DialectRefusal, says: str) -> None:
    assert says in "; ".join(refusals.faults(wrong))
