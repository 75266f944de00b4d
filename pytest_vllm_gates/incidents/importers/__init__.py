"""Importers of requests from curl command lines, clients' and vLLM's logs, HAR and batch files.

Their input may come from anybody: it is only read. Each importer is a module with two functions:
`claims` recognizes its kind of text, and `requests` returns the requests in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client.exchange import Sent, redacted_headers
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_BYTES = 64 * 2**20
BODY_BYTES = 16 * 2**20
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
V1 = "/v1/"
# Headers of the connection, not of the request; the client sets them again when it sends.
OF_THE_CONNECTION = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}


def request(url: str, body: bytes, *, method: str = "POST", headers: Mapping[str, str]) -> Sent:
    """Return a request below a server's root; raises `UserError` if vLLM has no such request."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UserError(f"{url[:80]!r} is not a URL: {error}") from error
    at = parts.path.rfind(V1)
    if at < 0:
        raise UserError(
            f"{parts.path or url!r} is not a path of an OpenAI-compatible server: /v1/…"
        )
    if len(body) > BODY_BYTES:
        raise UserError(f"a body has {len(body)} bytes, more than {BODY_BYTES}")
    object_of(body)
    path = parts.path[at:] + (f"?{parts.query}" if parts.query else "")
    request_headers = {
        name: value for name, value in headers.items() if name.lower() not in OF_THE_CONNECTION
    }
    return Sent(
        method=method.upper(), path=path, headers=redacted_headers(request_headers), body=body
    )


def object_of(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; raises `UserError` for any other body."""
    try:
        value = syntax.json_value(body)
    except syntax.BadSyntaxError as error:
        raise UserError(f"the request's body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError("the request's body is not a JSON object")
    return value


def path_of(body: Mapping[str, Any]) -> str:
    """Return the path that a body is sent to, by its keys."""
    if "messages" in body:
        return CHAT
    return RESPONSES if "input" in body and "prompt" not in body else COMPLETIONS
