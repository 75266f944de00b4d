"""Sends requests as gateways and browsers do: headers, methods, encodings, keys.

It observes the protocol: status, headers of interest, the shape of an error.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2 as httpx

from pytest_vllm_gates.client import http as client_http, network, sockets
from pytest_vllm_gates.contracts.types import ContractReply, HttpReply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.contracts.types import HttpRequest

KEY, BASIC = "${key}", "${basic}"
REUSE = "two requests on one connection"
REUSED_PATH = "/v1/models"
TIMEOUT_S = 60.0
SHOWN = 200
CHUNK_BYTES, MOST_BYTES = 65_536, 4_194_304
PROMPT = "Hello!"
SPOKEN: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": PROMPT, "max_tokens": 1},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": 1, "store": False},
}
"""The one-token requests of some routes; the other routes get a chat."""


def send(endpoint: Endpoint, requests: tuple[HttpRequest, ...]) -> Iterator[HttpReply]:
    """Send each request on its own connection, then two on one."""
    for request in requests:
        if request.needs_key and not endpoint.api_key:
            continue
        yield _reply(endpoint, request)
    yield HttpReply(ContractReply(REUSE, None), reused=_is_reused(endpoint))


def _reply(endpoint: Endpoint, request: HttpRequest) -> HttpReply:
    headers = {name: _filled(value, endpoint.api_key) for name, value in request.headers.items()}
    body = _body(endpoint, request)
    content = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        headers["Content-Type"] = "application/json"
    if request.compressed:
        content, headers["Content-Encoding"] = gzip.compress(content, mtime=0), "gzip"
    # A request that sends the key in another form has it in its own headers.
    key = "" if request.needs_key else None
    shown = {"method": request.method, "path": request.path, "headers": dict(request.headers)}
    shown |= {} if body is None else {"body": body}
    try:
        with client_http.client(endpoint, api_key=key) as client:
            reply = client.request(
                request.method, request.path, content=content, headers=headers, timeout=TIMEOUT_S
            )
    except httpx.HTTPError as error:
        text = f"{type(error).__name__}: {error}"
        return HttpReply(ContractReply(request.name, None, text=text, request=shown), headers)
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    found = ContractReply(
        request.name, reply.status_code, kind, _bodies(reply), reply.text[:SHOWN], shown
    )
    return HttpReply(found, headers, request.pinned, dict(reply.headers))


def _body(endpoint: Endpoint, request: HttpRequest) -> dict[str, Any] | None:
    if request.method != "POST":
        return None
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}
    spoken = SPOKEN.get(request.path.rstrip("/"), chat)
    return {"model": endpoint.model, **spoken, "temperature": 0, **request.body}


def _filled(value: str, key: str | None) -> str:
    basic = base64.b64encode(f"user:{key}".encode()).decode()
    return value.replace(KEY, key or "").replace(BASIC, basic)


def _bodies(reply: httpx.Response) -> tuple[Any, ...]:
    try:
        return (reply.json(),)
    except (ValueError, RecursionError):
        return ()


def _drain(response: http.client.HTTPResponse, until: float) -> None:
    """Read an answer to its end; raises `HTTPException` for one that is too long or too slow."""
    size = 0
    while data := response.read1(CHUNK_BYTES):
        size += len(data)
        if size > MOST_BYTES or time.monotonic() > until:
            raise http.client.HTTPException(f"{REUSED_PATH} does not end")
    response.close()  # read1 leaves it open, and then the connection accepts no further request


def _is_reused(endpoint: Endpoint) -> bool | None:
    """Return whether a connection accepts a second request, None if the first one fails."""
    url = urlsplit(endpoint.root_url)
    secure = url.scheme == "https"
    host, port = url.hostname or "", url.port or (443 if secure else 80)
    headers = endpoint.request_headers()
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    until = time.monotonic() + TIMEOUT_S
    connection.auto_open = 0  # a second connection would hide that the first is gone
    try:
        plain = sockets.connect(host, port, TIMEOUT_S)
        tls = network.tls(endpoint.verify) if secure else None
        connection.sock = sockets.encrypt(plain, tls, host, TIMEOUT_S) if tls else plain
        for number in range(2):
            try:
                connection.request("GET", f"{url.path}{REUSED_PATH}", headers=headers)
                _drain(connection.getresponse(), until)
            except (OSError, http.client.HTTPException):
                return None if number == 0 else False
    except OSError:
        return None
    finally:
        connection.close()
    return True
