"""Sends wrong requests to each API, and judges the refusals.

A client finds the error by the status and by the error's place in the body:
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
"""The wrong field of a request, by the name of the case."""
REFUSALS = range(400, 500)
JSON_KIND = "application/json"


@dataclass(frozen=True)
class DialectRefusal:
    """A server's answer to a wrong request."""

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
    """Return an answered request for each API."""
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
    """Yield refusals that a client cannot understand."""
    for refusal in refusals:
        for sentence in faults(refusal):
            yield Finding(refusal.case, sentence)


def faults(refusal: DialectRefusal) -> Iterator[str]:
    """Yield the faults of one refusal."""
    if refusal.status not in REFUSALS:
        means = "an answer" if refusal.status == OK else "a server error"
        yield f"it is answered with {refusal.status}, which a client reads as {means}"
        return
    if not refusal.kind.startswith(JSON_KIND):
        yield f"the refusal is {refusal.kind or 'without a content type'}, not {JSON_KIND}"
    try:
        body = record(syntax.json_value(refusal.body))
    except syntax.BadSyntaxError:
        body = {}
    error = record(body.get("error"))
    if not str(error.get("message") or "").strip():
        yield f"the refusal has no error.message: {shown(body)}"
    elif refusal.dialect == MESSAGES and body.get("type") != "error":
        yield f"the refusal has the type {shown(body.get('type'))}, and Anthropic's is 'error'"
