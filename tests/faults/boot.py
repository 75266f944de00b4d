"""Servers that answer but are broken: the boot gate fails."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("boot")
BOOT_TOKENS = 1024  # what the gate allows its answer, and no other gate in these runs


def is_completion(exchange: Exchange) -> bool:
    """Return whether this is the question of the boot gate."""
    return exchange.body.get("max_tokens") == BOOT_TOKENS


def say(exchange: Exchange, text: str) -> None:
    """Put `text` in place of the content, in its first piece where it comes in several."""
    for part in exchange.parts if is_completion(exchange) else ():
        if part.get("content"):
            part["content"], text = text, ""


@FAULTS.add("chat", says="only punctuation: '!!!!")
def answers_exclamation_marks(exchange: Exchange) -> None:
    """A kernel gives NaN, and token 0 is an exclamation mark (vllm#27364)."""
    say(exchange, "!" * 64)


@FAULTS.add("chat", says="repeats 'the ' 39 times")
def repeats_one_token(exchange: Exchange) -> None:
    """The sampler is stuck."""
    say(exchange, "the " * 40)


@FAULTS.add("chat", says="contains the marker '<|im_end|>'")
def leaks_its_end_of_turn(exchange: Exchange) -> None:
    """The stop token is printed, and not stopped at."""
    say(exchange, "The capital of France is Paris.<|im_end|>")


@FAULTS.add("chat", says="contains the special token '<|eot_id|>'")
def leaks_another_familys_token(exchange: Exchange) -> None:
    """The tokenizer of another model is served."""
    say(exchange, "Paris.<|eot_id|>")


@FAULTS.add("chat", says="do not decode")
def breaks_characters(exchange: Exchange) -> None:
    """Bytes of a character are cut apart."""
    say(exchange, "Paris \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} is")


@FAULTS.add("chat", says="none of ('Paris',) is in the answer")
def is_fluent_and_wrong(exchange: Exchange) -> None:
    """Weights and configuration do not fit: the language is there and the knowledge is not."""
    say(exchange, "I would say that it is a matter of taste.")


@FAULTS.add("request", says="a wrong key was answered 200, not 401")
def accepts_any_key(exchange: Exchange) -> None:
    """The key got lost on the way to the server."""
    exchange.trusted = exchange.key is not None


@FAULTS.add("chat", says="the first chat broke off")
def dies_on_its_first_prompt(exchange: Exchange) -> None:
    """Healthy, and gone with the first prompt, as with head sizes a kernel cannot do."""
    exchange.cut_after = 0


@FAULTS.add("chat", says="the first chat was answered 500: EngineCore")
def fails_its_first_prompt(exchange: Exchange) -> None:
    """The engine is dead and the API server is not."""
    exchange.status = HTTPStatus.INTERNAL_SERVER_ERROR
    exchange.text = "EngineCore encountered an issue."


@FAULTS.add("stream", says="the first chat ended in an error")
def ends_its_first_prompt_in_an_error(exchange: Exchange) -> None:
    """A stream that began well reports the error as an event."""
    exchange.events[2:] = [{"error": {"message": "EngineCore encountered an issue."}}]


@FAULTS.add("stream", says="without a single token")
def streams_no_token(exchange: Exchange) -> None:
    """The first token is the stop token."""
    for part in exchange.parts:
        part.clear()


@FAULTS.add("stream", says="the stream stopped before its end")
def never_ends_its_stream(exchange: Exchange) -> None:
    """The connection closes early, and cleanly, before the finish reason and [DONE]."""
    exchange.done = False
    exchange.events[:] = [
        event
        for event in exchange.events
        if not any(choice.get("finish_reason") for choice in event.get("choices", ()))
    ]


@FAULTS.add("anything", says="is this an OpenAI-compatible server?")
def is_no_openai_server(exchange: Exchange) -> None:
    """Another service has taken the port, and answers JSON; a page of HTML is HOLD, not REJECT."""
    if exchange.path == "/v1/models":
        exchange.kind, exchange.text = "application/json", '{"it": "works"}'


@FAULTS.add("anything", says="the server lists no model")
def serves_nothing(exchange: Exchange) -> None:
    """A gateway whose backend went away."""
    if exchange.path == "/v1/models":
        exchange.events[0]["data"] = []


@FAULTS.add(
    "anything",
    says="/version answered 404",
    also=("streaming", "stop", "tools", "robustness", "reasoning"),
)
def hides_its_version(exchange: Exchange) -> None:
    """A gateway lets only the API through; what is known of a version is then known of none."""
    if exchange.path == "/version":
        exchange.status, exchange.text = HTTPStatus.NOT_FOUND, "Not Found"
