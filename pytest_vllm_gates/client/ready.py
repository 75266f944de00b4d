"""The models that a server lists, and why one does not serve: by its own fault, or another's.

An unreachable address, a refused key and a gateway without a server behind it say nothing of what
is served: they are `NotReached`, all else is `NotServing`.
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
    "see that the URL ends where the API begins, http://host:8000/v1, and that the lane has every "
    "header a gateway wants: [headers]"
)
GATEWAY = "a gateway answers, and no server behind it does"
HTML = "text/html"

BEFORE_THE_SERVER = {
    401: ("the server refused the API key", KEY_HINT),
    403: ("the server or a gateway before it forbids access", KEY_HINT),
    407: ("a proxy before the server wants a login", "see the proxy, or ask inside the network"),
    429: ("a gateway allows no more requests now", "raise its limit for this client, or wait"),
    502: (GATEWAY, "see that the server runs, and where the gateway sends its requests"),
    503: (GATEWAY, "see that the server runs and is ready"),
    504: (GATEWAY, "see that the server runs, and how long the gateway waits"),
}
"""What a status says of the way to a server, and the next step (RFC 9110, RFC 6585)."""


OF_THE_CLIENT = (401, 403, 407, 429)
"""Statuses that in the midst of a run still say nothing of what is served."""

CONNECTING = {
    socket.gaierror: "the host's name is not known",
    ssl.SSLCertVerificationError: "the certificate is not accepted",
    ssl.SSLError: "TLS does not come about",
}
"""What an error below a connection's says of it; the narrower class comes first."""


class NotServing(Exception):  # noqa: N818 - a state of the server, told to a person
    """The server is up but does not serve; the text is its answer."""


class NotReached(NotServing):
    """Something before the server answered, or nothing at all."""

    def __init__(self, says: str, hint: str) -> None:
        """`hint` is the next step."""
        super().__init__(says)
        self.hint = hint


def refused(status: int, path: str) -> NotReached | None:
    """Return what a status says of the way to the server; None where the server itself speaks."""
    if status not in BEFORE_THE_SERVER:
        return None
    says, hint = BEFORE_THE_SERVER[status]
    return NotReached(f"{says} ({status} on {path})", hint)


def unreachable(error: Exception, url: str) -> NotReached | None:
    """Return why no connection to a URL came about; None for every other error.

    A connection that is accepted and then closed is the server's.
    """
    hint = f"curl -v {url}/models"
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return NotReached(f"{url!r} is no URL of a server: {error}", URL_HINT)
    if isinstance(error, httpx.ConnectTimeout):
        return NotReached(f"no connection comes about in time: {error}", hint)
    if not isinstance(error, httpx.ConnectError):
        return None
    for cause in _causes(error):
        for kind, says in CONNECTING.items():
            if isinstance(cause, kind):
                return NotReached(f"{says}: {cause}", hint)
    return NotReached(str(error), hint)


def lost(error: BaseException, url: str) -> NotReached | None:
    """Return why a server that answered before is not reached now; None where it may be its doing.

    `error` is httpx's or openai's. A request that was cut off is the server's.
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

    Raises `NotReached` where something before the server answers, and `NotServing` when the answer
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
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
