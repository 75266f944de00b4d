"""Servers that mix up requests: the isolation gate fails.

These faults show only with ten requests or more at once, as in the reports; the conversation gates
send fewer at a time.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from faults.fault import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange

FAULTS = Faults("isolation")

MANY = 10
MEET_S = 0.05
MEET_AGAIN_S = 0.5
GATHER_S = 30.0
PREFIX_CHARACTERS = 200


class Company:
    """The requests in progress at the same time; the proxy answers too fast to see them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._here: list[Exchange] = []
        self._gathered: list[Exchange] = []
        self._asked: set[str] = set()

    def of(self, exchange: Exchange) -> list[Exchange]:
        """Wait for all requests in progress at the proxy; return them if they are many.

        On a busy machine the second may come late, so a request that is repeated among others waits
        longer: one that the gate has sent alone before, or a ticket after a long beginning.
        """
        body = json.dumps(exchange.body, sort_keys=True)
        ticket = "structured_outputs" in exchange.body and len(body) > PREFIX_CHARACTERS * 4
        with self._changed:
            alone_s = MEET_AGAIN_S if ticket or body in self._asked else MEET_S
            self._asked.add(body)
            self._here.append(exchange)
            self._changed.notify_all()
            started = time.monotonic()
            while len(self._here) < MANY and exchange not in self._gathered:
                waited = self._changed.wait(0.01)
                limit = GATHER_S if exchange.unanswered() > len(self._here) else alone_s
                if not waited and time.monotonic() - started > limit:
                    break
            if len(self._here) >= MANY:
                self._gathered = [*self._here]
                self._here = []
                self._changed.notify_all()
            if exchange in self._gathered:
                return self._gathered
            if exchange in self._here:
                self._here.remove(exchange)
            return []


def among_many(alter: Callable[[Exchange, Exchange], None]) -> Callable[[Exchange], None]:
    """Alter an answer by the next one's, if many are in progress."""
    company = Company()

    def change(exchange: Exchange) -> None:
        original = replace(exchange, events=copy.deepcopy(exchange.events))
        together = company.of(original)
        if together:
            position = next(number for number, member in enumerate(together) if member is original)
            alter(exchange, together[(position + 1) % len(together)])

    change.__name__ = alter.__name__
    change.__doc__ = alter.__doc__
    return change


def answer_text(exchange: Exchange) -> str:
    """Return the content of an answer, whole or streamed."""
    return "".join(part.get("content") or "" for part in exchange.parts)


def say(exchange: Exchange, text: str) -> None:
    """Put a text in place of the content."""
    for part in exchange.parts:
        if part.get("content"):
            part["content"] = text
            text = ""


@FAULTS.add("chat", says="which is request ")
@among_many
def swaps_answers(exchange: Exchange, neighbour: Exchange) -> None:
    """Each request gets the answer of the next one (vllm#13408)."""
    say(exchange, answer_text(neighbour))


@FAULTS.add("chat", says="which is request ")
@among_many
def adds_what_another_was_told(exchange: Exchange, neighbour: Exchange) -> None:
    """A buffer is not emptied between two requests (mlx-lm#965)."""
    say(exchange, f"{answer_text(exchange)} {answer_text(neighbour)}")


@FAULTS.add("chat", says="does not contain its own")
@among_many
def says_bangs_in_company(exchange: Exchange, _: Exchange) -> None:
    """Garbled only at high concurrency (vllm-ascend#7854)."""
    say(exchange, "!!!!!!!!")


SPOILED_IN = Company()
SPOILED: set[str] = set()


@FAULTS.add("chat", says="does not contain its own")
def keeps_what_company_spoiled(exchange: Exchange) -> None:
    """Results computed in a batch are wrong, and equal later requests read them from a cache.

    A request with another cache salt does not.
    """
    if "structured_outputs" not in exchange.body:
        return
    key = json.dumps(exchange.body, sort_keys=True)
    if SPOILED_IN.of(replace(exchange, events=copy.deepcopy(exchange.events))):
        SPOILED.add(key)
    if key in SPOILED:
        say(exchange, "Nobody knows.")


@FAULTS.add("whole", says="concurrent requests an answer differs from the one alone")
@among_many
def ends_early_in_company(exchange: Exchange, _: Exchange) -> None:
    """A limit of tokens is taken from another request of the batch."""
    if "structured_outputs" not in exchange.body:
        say(exchange, answer_text(exchange)[:4])


@FAULTS.add("chat", says="no answer: answered 503")
@among_many
def turns_people_away_in_company(exchange: Exchange, _: Exchange) -> None:
    """A gateway counts connections, and its limit is low."""
    exchange.status, exchange.text = HTTPStatus.SERVICE_UNAVAILABLE, "too many requests"


class Cache:
    """The memory of a cache with a key that is too short."""

    answers: dict[str, str] = {}  # noqa: RUF012 - one run's
    salts: set[str] = set()  # noqa: RUF012


def _prompt(exchange: Exchange) -> str:
    return str(exchange.body["messages"][-1].get("content"))


@FAULTS.add("whole", says="does not contain its own")
def answers_from_a_cache_with_a_short_key(exchange: Exchange) -> None:
    """A gateway's cache looks at the beginning of the prompt."""
    prompt = _prompt(exchange)
    if len(prompt) > PREFIX_CHARACTERS:
        say(exchange, Cache.answers.setdefault(prompt[:PREFIX_CHARACTERS], answer_text(exchange)))


@FAULTS.add("whole", says="the same prompt again")
def answers_otherwise_on_a_warm_prefix(exchange: Exchange) -> None:
    """The state restored with a cached prefix belongs to another (vllm#43559)."""
    salt = str(exchange.body.get("cache_salt"))
    if len(_prompt(exchange)) > PREFIX_CHARACTERS:
        if salt in Cache.salts:
            say(exchange, "The the the the.")
        Cache.salts.add(salt)


@FAULTS.add("request", says="streamed:\n  4 clients left")
def streams_to_nobody(exchange: Exchange) -> None:
    """A gateway reads every stream to its end."""
    exchange.kept = exchange.streamed


@FAULTS.add("request", says="whole:\n  4 clients left")
def answers_nobody(exchange: Exchange) -> None:
    """A gateway waits for an answer after its client has left."""
    exchange.kept = not exchange.streamed
