"""Servers that mix LoRA adapters up: each fault turns its own check of the gate adapters red."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from faults.exchange import CHAT
from faults.fault import Faults
from pytest_vllm_gates.adapters.ask import UNKNOWN
from pytest_vllm_gates.client.served_names import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange
    from faults.fault import Change

FAULTS = Faults("adapters")
SAILOR, DIARY = "sailor", "diary"
ADAPTERS = (SAILOR, DIARY)
LISTED = "adapters_are_listed_with_their_base"
NAMED = "answers_name_their_adapter"
ITSELF = "each_adapter_answers_for_itself"
BASE = "base_model_stays_as_it_was"
BATCH = "adapters_keep_apart_in_one_batch"
CACHE = "adapters_keep_apart_in_the_prefix_cache"
MISSING = "unknown_adapters_are_refused"
STREAMED_ALONE = 3
"""So many streams come one by one, before those that are sent at once."""
LONG = 1000
"""Characters of a question from which on its prompt fills blocks of the cache."""


class Server:
    """The memory of the faulty server."""

    base = ""
    seen: dict[str, str]
    """The model that first got a long prompt with this salt."""
    names: dict[int, str]
    """The model that each exchange names, by its id."""
    adapters_asked = 0

    @classmethod
    def reset(cls, base: str) -> None:
        """Forget everything; `base` is the base model's name."""
        cls.base, cls.seen, cls.names, cls.adapters_asked = base, {}, {}, 0


def asked(check: str, says: str, *besides: str) -> Callable[[Change], Change]:
    """Make a fault of a function that sends a chat to another model than it names.

    The answer names the requested one, as a server does that reads only the request.
    """

    def declare(change: Change) -> Change:
        @functools.wraps(change)
        def alter(exchange: Exchange) -> None:
            if "model" in exchange.body:
                Server.names[id(exchange)] = exchange.body["model"]
                exchange.body = copy.deepcopy(exchange.body)
                change(exchange)

        def name_it(exchange: Exchange) -> None:
            exchange.events = copy.deepcopy(exchange.events)  # the upstream keeps them
            for event in exchange.events:
                if "model" in event and id(exchange) in Server.names:
                    event["model"] = Server.names[id(exchange)]

        declared = FAULTS.add("request", says=says, check=check, besides=besides)(alter)
        FAULTS.all[-1] = replace(FAULTS.all[-1], reply=name_it)
        return declared

    return declare


def question(exchange: Exchange) -> str:
    """Return the last message of a chat."""
    messages = exchange.body.get("messages") or [{}]
    return str(messages[-1].get("content"))


def in_company(exchange: Exchange) -> bool:
    """Return whether it is streamed and short, as the requests that are sent at once."""
    own = bool(exchange.body.get("return_token_ids"))  # not the chat of the attach
    return own and exchange.streamed and len(question(exchange)) < LONG


def for_base(exchange: Exchange) -> bool:
    """Return whether the base model is requested, by any of its names."""
    model = str(exchange.body["model"])
    return model not in ADAPTERS and not model.startswith(UNKNOWN)


@asked(ITSELF, "its answers begin with 'Aye!'")
def ignores_an_adapter(exchange: Exchange) -> None:
    """The adapter is loaded and listed, and no layer uses it."""
    if exchange.body["model"] == SAILOR:
        exchange.body["model"] = Server.base


@asked(ITSELF, "this is diary's answer")
def answers_with_the_other_adapter(exchange: Exchange) -> None:
    """Two adapters share a slot (vllm#41754 is of that class)."""
    if exchange.body["model"] == SAILOR:
        exchange.body["model"] = DIARY


@asked(ITSELF, "this is sailor's answer")
def answers_the_base_with_an_adapter(exchange: Exchange) -> None:
    """A slot is not emptied: requests for the base model get an adapter."""
    if for_base(exchange) and "messages" in exchange.body:
        exchange.body["model"] = SAILOR


@asked(BATCH, "that is the answer of diary")
def mixes_adapters_up_in_a_batch(exchange: Exchange) -> None:
    """In a batch of several adapters the indices of one are another's."""
    at_once = in_company(exchange) and Server.adapters_asked >= STREAMED_ALONE
    if at_once and exchange.body["model"] == SAILOR:
        exchange.body["model"] = DIARY
    Server.adapters_asked += in_company(exchange)


@asked(CACHE, "that is the answer of")
def takes_a_prefix_of_another_adapter(exchange: Exchange) -> None:
    """The cache's key has no adapter in it: what the first left behind answers for the next."""
    salt = exchange.body.get("cache_salt")
    if salt and len(question(exchange)) >= LONG:
        exchange.body["model"] = Server.seen.setdefault(salt, exchange.body["model"])


@asked(BASE, "that is the answer of sailor")
def leaves_an_adapter_in_the_base(exchange: Exchange) -> None:
    """After a batch of adapters the base model answers with one of them."""
    plain = not exchange.streamed and not exchange.body.get("cache_salt")
    if plain and for_base(exchange) and Server.adapters_asked:
        exchange.body["model"] = SAILOR
    Server.adapters_asked += in_company(exchange) and exchange.body["model"] in ADAPTERS


@asked(MISSING, "answered 200, not 404")
def answers_for_an_unknown_adapter(exchange: Exchange) -> None:
    """A gateway sends what it does not know to the base model."""
    if str(exchange.body["model"]).startswith(UNKNOWN):
        exchange.body["model"] = Server.base


@FAULTS.told(MODELS, LISTED, "not the base model")
def lists_an_adapter_under_no_base(exchange: Exchange) -> None:
    """An adapter is listed as another's."""
    for event in exchange.events:
        for entry in event.get("data", ()):
            if entry.get("parent") and entry["id"] == SAILOR:
                entry["parent"] = "another-model"


@FAULTS.told(CHAT, NAMED, "as its model")
def names_the_base_model(exchange: Exchange) -> None:
    """A gateway writes the base model's name into every answer."""
    for event in exchange.events:
        if event.get("model") in ADAPTERS:
            event["model"] = Server.base
