"""Servers that count, date and name their answers wrongly: streaming fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faults.fault import Faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.exchange import Exchange

FAULTS = Faults("streaming")
ENVELOPE = "ids_times_and_usage_are_plausible"
FRAMED = "stream_is_framed_as_clients_expect"
SCORES = "log_probabilities_are_those_of_the_text"


def usages(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Yield the log-probabilities and tokens of an answer's choices."""
    for event in exchange.events:
        if event.get("usage"):
            yield event["usage"]


def scores(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Yield the log-probabilities of an answer's tokens."""
    for choice in exchange.choices:
        yield from (choice.get("logprobs") or {}).get("content") or ()


@FAULTS.add("chat", check=ENVELOPE, says="other requests' answers")
def gives_all_answers_one_id(exchange: Exchange) -> None:
    """A gateway fills in a constant."""
    for event in exchange.events:
        event["id"] = "chatcmpl-1"


@FAULTS.add("chat", check=ENVELOPE, says="created is 0: expected seconds since 1970")
def tells_no_time(exchange: Exchange) -> None:
    """The field is there, and empty."""
    for event in exchange.events:
        event["created"] = 0


@FAULTS.add("whole", check=ENVELOPE, says="000: expected seconds since 1970")
def tells_the_time_in_milliseconds(exchange: Exchange) -> None:
    """A gateway in JavaScript."""
    for event in exchange.events:
        event["created"] *= 1000


@FAULTS.add("chat", check=ENVELOPE, says=" in all")
def adds_up_wrongly(exchange: Exchange) -> None:
    """The sum has a token that neither part has."""
    for usage in usages(exchange):
        usage["total_tokens"] += 1


@FAULTS.add("chat", check=ENVELOPE, says=" cached_tokens of ")
def caches_more_than_there_is(exchange: Exchange) -> None:
    """Cached tokens are counted in blocks, the last one whole."""
    for usage in usages(exchange):
        usage["prompt_tokens_details"] = {"cached_tokens": usage["prompt_tokens"] + 5}


@FAULTS.add("stream", check=FRAMED, says="system_fingerprint changes within the stream")
def changes_its_fingerprint(exchange: Exchange) -> None:
    """Chunks are named as if each were from another server."""
    for number, event in enumerate(exchange.events):
        event["system_fingerprint"] = f"fp_{number}"


@FAULTS.add("chat", check=SCORES, says=", above 0")
def scores_above_zero(exchange: Exchange) -> None:
    """The negative log-probability is sent."""
    if exchange.scored:
        for score in scores(exchange):
            score["logprob"] = -score["logprob"] + 0.2


@FAULTS.add("chat", check=SCORES, says="and its alternatives have")
def lists_the_unlikely_first(exchange: Exchange) -> None:
    """Alternatives are sorted the wrong way round."""
    if exchange.scored:
        for score in scores(exchange):
            score["top_logprobs"] = score["top_logprobs"][::-1]


@FAULTS.add("chat", check=SCORES, says=" alternatives of 2 requested")
def knows_no_alternatives(exchange: Exchange) -> None:
    """Only the token that was drawn has a log-probability."""
    if exchange.scored:
        for score in scores(exchange):
            score["top_logprobs"] = score["top_logprobs"][:1]
