"""Sends each API requests that are wrong, and judges how they are refused.

A client tells what went wrong by the status and by the error's place in the body:
https://platform.openai.com/docs/guides/error-codes and https://docs.anthropic.com/en/api/errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.untyped import record, shown
from pytest_vllm_gates.dialects.routes import PATHS
from pytest_vllm_gates.dialects.types import (
    CHAT,
    MESSAGES,
    OK,
    STREAM,
    WHOLE,
    Dialogues,
)
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

WRONG: Mapping[str, Mapping[str, Any]] = {
    "a temperature that is a word": {"temperature": "warm"},
    "a model that is not served": {"model": "no-such-model"},
}
"""What is wrong with a request, by its name."""
REFUSALS = range(400, 500)
JSON_KIND = "application/json"


@dataclass(frozen=True)
class DialectRefusal:
    """What a server answered to a wrong request."""

    case: Case
    dialect: str
    status: int
    kind: str
    """The content type."""
    body: bytes


def ask(endpoint: Endpoint, dialogues: Dialogues) -> list[DialectRefusal]:
    """Send wrong requests, whole and streamed, to every API that answered right ones."""
    return [
        _asked(endpoint, dialect, mode, name, {**request, **wrong, "stream": mode == STREAM})
        for dialect, request in _right_requests(dialogues).items()
        for name, wrong in WRONG.items()
        for mode in (WHOLE, STREAM)
    ]


def _right_requests(dialogues: Dialogues) -> dict[str, Mapping[str, Any]]:
    """Return a request of each API that was answered."""
    requests: dict[str, Mapping[str, Any]] = {CHAT: dialogues.dialogues[0].chat_request}
    for _, reply in dialogues.answered:
        requests.setdefault(reply.dialect, reply.request)
    return requests


def _asked(
    endpoint: Endpoint, dialect: str, mode: str, name: str, request: Mapping[str, Any]
) -> DialectRefusal:
    reply = http.post(endpoint, PATHS[dialect], request)
    traits = {"dialect": dialect, "mode": mode, "case": name}
    return DialectRefusal(
        Case(f"{dialect} {mode}: {name}", traits, request),
        dialect,
        reply.status_code,
        reply.headers.get("content-type", ""),
        reply.content,
    )


def findings(refusals: list[DialectRefusal]) -> Iterator[Finding]:
    """Yield what a client cannot make sense of."""
    for refusal in refusals:
        for sentence in faults(refusal):
            yield Finding(refusal.case, sentence)


def faults(refusal: DialectRefusal) -> Iterator[str]:
    """Yield what is wrong with one refusal."""
    if refusal.status not in REFUSALS:
        means = "is an answer" if refusal.status == OK else "is the server's own failure"
        yield f"it is answered with {refusal.status}, which {means} to a client"
        return
    if not refusal.kind.startswith(JSON_KIND):
        yield f"the refusal is {refusal.kind or 'of no content type'}, not {JSON_KIND}"
    try:
        body = record(syntax.json_value(refusal.body))
    except syntax.BadSyntaxError:
        body = {}
    error = record(body.get("error"))
    if not str(error.get("message") or "").strip():
        yield f"the refusal has no error.message: {shown(body)}"
    elif refusal.dialect == MESSAGES and body.get("type") != "error":
        yield f"the refusal has the type {shown(body.get('type'))}, and 'error' is Anthropic's"
