"""Gateways that drop or change a sampling parameter: the sampling gate fails and names it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from faults.fault import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange

FAULTS = Faults("sampling")

TOGETHER_S = 0.1
COLD, TOP_K = 0.9, 50
COMPLETIONS = "/v1/completions"


@FAULTS.add("request", says="as if temperature is 0.9")
def draws_too_cold(exchange: Exchange) -> None:
    """A default of the gateway replaces a temperature of 1."""
    if exchange.body.get("temperature") == 1:
        exchange.body["temperature"] = COLD


@FAULTS.add("request", says="it looks as if top_p is ignored")
def drops_top_p(exchange: Exchange) -> None:
    """The gateway does not know the field."""
    exchange.body.pop("top_p", None)


@FAULTS.add("request", says="as if top_k is 50")
def cuts_at_fifty(exchange: Exchange) -> None:
    """A default of transformers (`top_k = 50`) for requests without a cut."""
    if exchange.body.get("top_k") == 0:
        exchange.body["top_k"] = TOP_K


def dropping(name: str, says: str) -> Callable[[Exchange], None]:
    """Return the fault of a gateway that does not know a field."""

    def change(exchange: Exchange) -> None:
        exchange.body.pop(name, None)

    change.__name__ = f"drops_{name}"
    change.__doc__ = f"The gateway does not know {name}."
    return FAULTS.add("request", says=says)(change)


for _name in (
    "temperature", "top_k", "min_p", "logit_bias", "allowed_token_ids", "presence_penalty",
    "frequency_penalty", "repetition_penalty",
):  # fmt: skip
    dropping(_name, f"{_name} is ignored")
dropping("echo", "echo: the text begins with ")
dropping("suffix", "suffix: the prompt has ")
dropping("truncate_prompt_tokens", "truncate_prompt_tokens 3: the prompt has ")
dropping("ignore_eos", "ignore_eos: expected 28 tokens (length), and ")
dropping("seed", "seed: the answers are drawn anew")
dropping("stop_token_ids", "stop_token_ids: ")
dropping("min_tokens", "min_tokens 4: ")
dropping("thinking_token_budget", "tokens of reasoning, as without it: it is ignored")


@FAULTS.add("request", says="top_p is 0.")
def cuts_lower(exchange: Exchange) -> None:
    """top_p is rounded up by a twentieth."""
    if 0 < exchange.body.get("top_p", 1) < 1:
        exchange.body["top_p"] += 0.05


@FAULTS.add("request", says="max_completion_tokens 3: answers have 5 tokens")
def counts_two_more(exchange: Exchange) -> None:
    """The limit of a chat is off by two."""
    if "max_completion_tokens" in exchange.body:
        exchange.body["max_completion_tokens"] += 2


@FAULTS.add("request", says="seed: the answers are always the same")
def has_one_seed(exchange: Exchange) -> None:
    """Every request that is sampled gets the seed of the gateway."""
    if exchange.body.get("temperature"):
        exchange.body["seed"] = 7


class Crowd:
    """The number of concurrent requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = 0

    def joined(self) -> bool:
        """Return whether another request comes within a moment."""
        with self._lock:
            self._here += 1
        time.sleep(TOGETHER_S)
        with self._lock:
            others = self._here > 1
        time.sleep(TOGETHER_S)
        with self._lock:
            self._here -= 1
        return others


CROWD = Crowd()


@FAULTS.add("request", says="seed: the answers are drawn anew")
def shares_a_seed_in_a_batch(exchange: Exchange) -> None:
    """The generator is the batch's: concurrent requests share one seed."""
    if exchange.body.get("seed") is not None and CROWD.joined():
        exchange.body["seed"] = 7


@FAULTS.add("request", says="bad_words forbids token ")
def passes_what_openai_has(exchange: Exchange) -> None:
    """A gateway passes the parameters of OpenAI's API, and no more."""
    if exchange.path == COMPLETIONS:
        exchange.body.pop("bad_words", None)


@FAULTS.add("request", says="the answer is to end in its stop ")
def leaves_the_stop_out(exchange: Exchange) -> None:
    """A gateway requests answers without vLLM's extra fields."""
    exchange.body.pop("include_stop_str_in_output", None)


@FAULTS.add("request", says="2 choices were requested (n), and 1 came")
def streams_one_choice(exchange: Exchange) -> None:
    """An engine that streams has one choice."""
    if exchange.path == COMPLETIONS and exchange.body.get("stream"):
        exchange.body.pop("n", None)


@FAULTS.add("anything", says="log-probabilities of ")
def scores_half_of_a_stream(exchange: Exchange) -> None:
    """Deltas of several tokens come with the log-probability of one."""
    if exchange.path == COMPLETIONS and exchange.streamed:
        for event in exchange.events[::2]:
            for choice in event["choices"]:
                choice["logprobs"] = None
