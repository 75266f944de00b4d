"""Servers and gateways that handle a client's mistake badly: the robustness gate fails."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from faults.exchange import CHAT
from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("robustness")

LARGE_BYTES = 9_000_000
LONG_CHARACTERS = 1000


def is_refused(exchange: Exchange) -> bool:
    """Return whether a client's mistake was answered, on the gate's routes."""
    return exchange.path.startswith("/v1/") and 400 <= exchange.status < 500 and exchange.size > 0


def answer(exchange: Exchange, status: HTTPStatus, text: str, kind: str = "text/html") -> None:
    """Answer in place of the server."""
    exchange.status, exchange.text, exchange.kind = status, text, kind


@FAULTS.add("anything", says="answered 500: 'Internal Server Error'")
def fails_at_bodies_that_are_no_json(exchange: Exchange) -> None:
    """The parser's exception is not caught."""
    if exchange.raw is not None:
        answer(exchange, HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error", "text/plain")


@FAULTS.add("anything", says="temperature below zero:\n  answered 503")
def fails_at_wrong_sampling(exchange: Exchange) -> None:
    """A gateway takes every error for an outage, and clients retry for ever."""
    if is_refused(exchange) and _number(exchange.body.get("temperature")) < 0:
        answer(exchange, HTTPStatus.SERVICE_UNAVAILABLE, "upstream error", "text/plain")


@FAULTS.add("anything", says="answered 200, and not refused")
def answers_mistakes_with_200(exchange: Exchange) -> None:
    """A gateway that has no status but this one."""
    if is_refused(exchange):
        exchange.status = HTTPStatus.OK


@FAULTS.add("anything", says="answered 200 with no completion")
def answers_odd_requests_with_nothing(exchange: Exchange) -> None:
    """A request that may be answered gets 200 without an answer."""
    if exchange.chat and exchange.body.get("seed") == -1:
        answer(exchange, HTTPStatus.OK, '{"ok": true}', "application/json")


@FAULTS.add("anything", says="four samples with a seed:\n  answered 400 with no completion")
def refuses_several_samples(exchange: Exchange) -> None:
    """A gateway that bills by the answer."""
    if exchange.chat and exchange.body.get("n") == 4:
        answer(exchange, HTTPStatus.BAD_REQUEST, '{"error": {"message": "n"}}', "application/json")


@FAULTS.add("anything", says="refused with 400 and no JSON error: '<html>")
def explains_mistakes_in_html(exchange: Exchange) -> None:
    """The error page of a web server before the real one."""
    if is_refused(exchange):
        answer(exchange, HTTPStatus.BAD_REQUEST, "<html><h1>400 Bad Request</h1></html>")


@FAULTS.add("anything", says="refused with 413 and no JSON error: '<html>")
def refuses_large_bodies_in_html(exchange: Exchange) -> None:
    """A limit somebody set on a reverse proxy."""
    if exchange.size > LARGE_BYTES:
        answer(exchange, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "<html>413</html>")


@FAULTS.add("anything", says="refused without a word of")
def names_nothing(exchange: Exchange) -> None:
    """Errors that were made safe to show."""
    if is_refused(exchange):
        exchange.events = [{"error": {"message": "Bad request.", "code": exchange.status}}]
        exchange.text = None


@FAULTS.add("anything", says="the connection broke")
def hangs_up_on_a_schema_of_nonsense(exchange: Exchange) -> None:
    """The worker that compiles it dies, and another takes its place."""
    if "nonsense" in str(exchange.body.get("response_format")):
        exchange.cut_after = 0


@FAULTS.add("request", says="temperature below zero")
def corrects_temperatures(exchange: Exchange) -> None:
    """A gateway that corrects requests."""
    if not 0 <= _number(exchange.body.get("temperature")) <= 2:
        exchange.body["temperature"] = 1


@FAULTS.add("request", says="a prompt longer than the context")
def cuts_long_prompts(exchange: Exchange) -> None:
    """The first part of a prompt is answered, and the rest is silently left out."""
    for message in exchange.body.get("messages") or ():
        content = isinstance(message, dict) and message.get("content")
        if exchange.path == CHAT and isinstance(content, str) and len(content) > LONG_CHARACTERS:
            message["content"] = content[:LONG_CHARACTERS]


@FAULTS.add("request", says="unknown model:\n  answered 200, and not refused")
def answers_for_models_it_has_not(exchange: Exchange) -> None:
    """A router falls back to what it has."""
    if exchange.body.get("model") == "no-such-model":
        exchange.body["model"] = "qwen3.5"


class Wounded:
    """The state of a server after a request that broke something in it."""

    dead = confused = False


@FAULTS.add("anything", says="an ordinary question: no answer")
def dies_of_a_large_body(exchange: Exchange) -> None:
    """The request is refused, and its memory is never released."""
    if Wounded.dead and exchange.path == CHAT:
        answer(exchange, HTTPStatus.BAD_GATEWAY, "Bad Gateway", "text/plain")
    Wounded.dead = Wounded.dead or exchange.size > LARGE_BYTES


@FAULTS.add("anything", says="an ordinary question: alone ")
def is_confused_by_a_grammar(exchange: Exchange) -> None:
    """A refused grammar stays behind, and is applied to the next request."""
    if Wounded.confused and exchange.chat:
        for part in exchange.parts:
            part["content"] = "aaaa"
    Wounded.confused = Wounded.confused or "grammar" in str(exchange.body.get("structured_outputs"))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
