"""Servers that treat headers, methods, keys or unknown fields of a request wrongly."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from faults.contracts import PROTOCOL
from faults.exchange import CHAT, JSON
from faults.fault import Faults
from faults.robustness import answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange

FAULTS = Faults("contracts")
PATHS = {
    "chat": CHAT,
    "completion": "/v1/completions",
    "response": "/v1/responses",
    "message": "/v1/messages",
}
USER = {"message": "a user in the metadata"}
CONTRACT = 5
"""The priority that the contracts send; the robustness gate sends others."""
TIER = {"response": "a service tier", "message": "a service tier"}


@FAULTS.add("anything", check=PROTOCOL, says="a request id: id is absent and was echoed")
def forgets_request_ids(exchange: Exchange) -> None:
    """The client's id of the request is not in the log."""
    if exchange.headers.pop("X-Request-Id", "").startswith("gates-contracts"):
        exchange.events[0]["id"] = "chatcmpl-7"


@FAULTS.add(
    "anything",
    check=PROTOCOL,
    says="a priority of a chat: HTTP status is 429 and was ",
)
def is_busy_for_whoever_waits(exchange: Exchange) -> None:
    """A gateway has a queue per priority, and sends no Retry-After."""
    if exchange.path == CHAT and exchange.body.get("priority") == CONTRACT:
        error = '{"error":{"message":"busy","type":"rate_limit","param":null,"code":429}}'
        answer(exchange, HTTPStatus.TOO_MANY_REQUESTS, error, JSON)


@FAULTS.add("anything", check=PROTOCOL, says="OPTIONS: HTTP status is 200 and was 405")
def answers_every_preflight(exchange: Exchange) -> None:
    """A gateway lets every page of every origin in."""
    if exchange.method == "OPTIONS":
        answer(exchange, HTTPStatus.OK, "OK")
        exchange.shown_headers = {"access-control-allow-origin": "*"}


@FAULTS.add("anything", check=PROTOCOL, says="HEAD: HTTP status is 404 and was 405")
def knows_no_head(exchange: Exchange) -> None:
    """A gateway has routes by method, and no error for missing methods."""
    if exchange.method == "HEAD":
        answer(exchange, HTTPStatus.NOT_FOUND, "")


@FAULTS.add("anything", check=PROTOCOL, says="a slash at the end: HTTP status is 404 and was 307")
def redirects_no_slashes(exchange: Exchange) -> None:
    """A base URL that ends in a slash finds nothing."""
    if exchange.status == HTTPStatus.TEMPORARY_REDIRECT:
        answer(exchange, HTTPStatus.NOT_FOUND, '{"detail":"Not Found"}', JSON)
        exchange.shown_headers = {}


@FAULTS.add("anything", check=PROTOCOL, says="the scheme in lower case: HTTP status is 401 and was")
def wants_the_scheme_as_it_is_written(exchange: Exchange) -> None:
    """Schemes are the same in every case, and a gateway compares them letter by letter."""
    if exchange.headers.get("Authorization", "").startswith("bearer "):
        answer(exchange, HTTPStatus.UNAUTHORIZED, '{"error":"Unauthorized"}', JSON)


def refusing(
    field: str, kind: str, name: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST
) -> Callable[[Exchange], None]:
    """Return the fault of a gateway that refuses a field of one API; `name` is the request's."""

    def change(exchange: Exchange) -> None:
        if exchange.path == PATHS[kind] and field in exchange.body:
            text = f'{{"error":{{"message":"{field}: {status.phrase}"}}}}'
            answer(exchange, status, text, JSON)

    change.__name__ = f"refuses_{field}_of_a_{kind}_with_{status.value}"
    change.__doc__ = f"A gateway does not take {field}."
    return FAULTS.add(
        "anything",
        check=PROTOCOL,
        says=f"{name} of a {kind}: HTTP status is {status.value} and was 200",
    )(change)


for _kind in PATHS:
    refusing("no_such_field", _kind, "a field nobody knows")
    refusing("priority", _kind, "a priority")
    refusing("metadata", _kind, USER.get(_kind, "a user and metadata"))
    refusing("service_tier", _kind, TIER.get(_kind, "store and a service tier"))
# A gateway that has its own limits for waiting requests.
refusing("priority", "chat", "a priority", HTTPStatus.TOO_MANY_REQUESTS)
refusing("priority", "completion", "a priority", HTTPStatus.SERVICE_UNAVAILABLE)
refusing("priority", "response", "a priority", HTTPStatus.GATEWAY_TIMEOUT)


@FAULTS.add(
    "anything", check=PROTOCOL, says="two requests on one connection: connection is closed and was"
)
def keeps_no_connections(exchange: Exchange) -> None:
    """Every request needs its own connection."""
    exchange.shown_headers["Connection"] = "close"


@FAULTS.add("anything", check=PROTOCOL, says="a body compressed by gzip: HTTP status is 415")
def refuses_compressed_bodies_otherwise(exchange: Exchange) -> None:
    """A client that falls back to plain bodies on 400 does not on 415."""
    if exchange.headers.get("Content-Encoding") == "gzip":
        answer(exchange, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, '{"detail":"encoding"}', JSON)


@FAULTS.add(
    "anything",
    check=PROTOCOL,
    says="a preflight: header access-control-allow-methods is absent and was present",
)
def allows_no_methods(exchange: Exchange) -> None:
    """Browsers conclude that a page may not POST."""
    if exchange.method == "OPTIONS":
        exchange.shown_headers.pop("access-control-allow-methods", None)


@FAULTS.add("anything", check=PROTOCOL, says="OPTIONS: header allow is absent and was")
def names_no_methods(exchange: Exchange) -> None:
    """The refusal of a method does not name the allowed ones."""
    if exchange.method == "OPTIONS":
        exchange.shown_headers.pop("allow", None)


@FAULTS.add("anything", check=PROTOCOL, says="a slash at the end of a chat: HTTP status is 301 and")
def redirects_chats_as_pages(exchange: Exchange) -> None:
    """After a 301 clients send GET where they had sent POST."""
    if exchange.status == HTTPStatus.TEMPORARY_REDIRECT and exchange.method == "POST":
        exchange.status = HTTPStatus.MOVED_PERMANENTLY


@FAULTS.add("anything", check=PROTOCOL, says="HEAD of the health: HTTP status is 200 and was 405")
def answers_probes_itself(exchange: Exchange) -> None:
    """A load balancer's probe gets the gateway's answer that the server is well."""
    if exchange.method == "HEAD" and exchange.path == "/health":
        answer(exchange, HTTPStatus.OK, "")


@FAULTS.add(
    "anything", check=PROTOCOL, says="the header of another API: HTTP status is 200 and was"
)
def takes_the_key_of_another_api(exchange: Exchange) -> None:
    """A refused key is accepted."""
    if "X-Api-Key" in exchange.headers and exchange.status == HTTPStatus.UNAUTHORIZED:
        answer(exchange, HTTPStatus.OK, '{"object":"list","data":[]}', JSON)


@FAULTS.add("anything", check=PROTOCOL, says="no scheme: error is gone: clients that read it")
def refuses_keys_without_a_scheme_in_silence(exchange: Exchange) -> None:
    """The error does not name what is wrong with the key."""
    key = exchange.headers.get("Authorization", "")
    if exchange.status == HTTPStatus.UNAUTHORIZED and key and " " not in key:
        answer(exchange, HTTPStatus.UNAUTHORIZED, "{}", JSON)
