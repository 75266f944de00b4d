"""The models that a server lists, and why a server does not serve.

An unreachable address, a refused key and a gateway without a server behind it are not faults of the
server: they are `NotReached`, all other errors are `NotServing`.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client.form import Malformed, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBE_TIMEOUT_S = 5.0
MODELS = "/v1/models"
KEY_HINT = "export OPENAI_API_KEY, or name its variable with --api-key-env"
URL_HINT = (
    "check that the URL ends with the API's root, http://host:8000/v1, and that the lane has every "
    "header that a gateway requires: [headers]"
)
GATEWAY = "a gateway answers, but no server behind it answers"
HTML = "text/html"

BEFORE_THE_SERVER = {
    401: ("the server refused the API key", KEY_HINT),
    403: ("the server or a gateway before it forbids access", KEY_HINT),
    407: ("a proxy requires a login", "configure the proxy, or run inside the network"),
    429: ("a gateway limits the rate of requests", "raise its limit for this client, or wait"),
    502: (GATEWAY, "check that the server runs, and where the gateway sends its requests"),
    503: (GATEWAY, "check that the server runs and is ready"),
    504: (GATEWAY, "check that the server runs, and the gateway's timeout"),
}
"""The meaning of a status for the path to a server, and the next step (RFC 9110, RFC 6585)."""


OF_THE_CLIENT = (401, 403, 407, 429)
"""Statuses that during a run are still not faults of the server."""

CONNECTING = {
    socket.gaierror: "the host's name is not known",
    ssl.SSLCertVerificationError: "the certificate is not accepted",
    ssl.SSLError: "the TLS handshake failed",
}
"""The meaning of a connection error's cause; the narrower class comes first."""


class NotServing(Exception):  # noqa: N818 - a state of the server that a person reads
    """The server is up but does not serve; the text is its answer."""


class NotReached(NotServing):
    """Something in front of the server answered, or nothing at all."""

    def __init__(self, says: str, hint: str) -> None:
        """`hint` is the next step."""
        super().__init__(says)
        self.hint = hint


def refused(status: int, path: str) -> NotReached | None:
    """Return the error of the path to the server for a status; None for the server's own."""
    if status not in BEFORE_THE_SERVER:
        return None
    says, hint = BEFORE_THE_SERVER[status]
    return NotReached(f"{says} ({status} on {path})", hint)


def unreachable(error: Exception, url: str) -> NotReached | None:
    """Return why a connection to a URL failed; None for every other error.

    A connection that is accepted and then closed is the server's fault.
    """
    hint = f"curl -v {url}/models"
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return NotReached(f"{url!r} is not a URL of a server: {error}", URL_HINT)
    if isinstance(error, httpx.ConnectTimeout):
        return NotReached(f"the connection timed out: {error}", hint)
    if not isinstance(error, httpx.ConnectError):
        return None
    for cause in _causes(error):
        for kind, says in CONNECTING.items():
            if isinstance(cause, kind):
                return NotReached(f"{says}: {cause}", hint)
    return NotReached(str(error), hint)


def lost(error: BaseException, url: str) -> NotReached | None:
    """Return why a server that answered before cannot be reached; None if it may be at fault.

    `error` is httpx's or openai's. A request that was cut off is the server's fault.
    """
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in OF_THE_CLIENT:
        return refused(status, url)
    whys = (unreachable(cause, url) for cause in _causes(error) if isinstance(cause, Exception))
    return next(filter(None, whys), None)


def served_models(
    client: httpx.Client, timeout_s: float = PROBE_TIMEOUT_S
) -> dict[str, dict[str, Any]]:
    """Return `/v1/models` by id.

    Raises `NotReached` if something in front of the server answers, and `NotServing` if the answer
    is not as in OpenAI's API.
    """
    reply = client.get(MODELS, timeout=timeout_s)
    if before := refused(reply.status_code, MODELS):
        raise before
    shown = f"{MODELS} answered {reply.status_code} with {reply.text[:200]!r}"
    page = reply.headers.get("content-type", "").startswith(HTML)
    if reply.status_code == httpx.codes.NOT_FOUND or reply.is_redirect or page:
        raise NotReached(f"{shown}; is this an OpenAI-compatible server?", URL_HINT)
    try:
        with reading(f"the answer of {MODELS}"):
            return {str(model["id"]): dict(model) for model in reply.json()["data"]}
    except Malformed as error:
        raise NotServing(f"{shown}; is this an OpenAI-compatible server?") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, each once: one that was raised again may be its own cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
