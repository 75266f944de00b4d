"""Servers whose chunks no strict client merges, or that mix choices up: streaming fails."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("streaming")
FRAMED = "stream_is_framed_as_clients_expect"
TYPES = "fields_are_of_their_types"
CLIENT = "official_client_reads_the_same_answer"
CHOICES = "choices_are_kept_apart"
SCORES = "log_probabilities_are_those_of_the_text"


@FAULTS.add("stream", check=CLIENT, says="reads role as 'assistantassistant")
def repeats_the_role(exchange: Exchange) -> None:
    """Every chunk contains the role."""
    for part in exchange.parts:
        part["role"] = "assistant"


@FAULTS.add("stream", check=FRAMED, says="created changes within the stream: [")
def tells_the_time_of_every_chunk(exchange: Exchange) -> None:
    """It is the chunk's, not the answer's."""
    for number, event in enumerate(exchange.events):
        event["created"] += number


@FAULTS.add("stream", check=FRAMED, says="model changes within the stream: ['")
def tells_another_model_in_the_middle(exchange: Exchange) -> None:
    """A router goes on with another server."""
    for event in exchange.events[2:]:
        event["model"] = "gpt"


@FAULTS.add("stream", check=TYPES, says="chunk: object: Input should be 'chat.completion.chunk'")
def calls_its_chunks_completions(exchange: Exchange) -> None:
    """Those of the older interface are called so."""
    for event in exchange.events:
        event["object"] = "text_completion"


@FAULTS.add("stream", check=TYPES, says="chunk: created: Input should be a valid integer")
def tells_the_time_in_fractions(exchange: Exchange) -> None:
    """Seconds are whole numbers."""
    for event in exchange.events:
        event["created"] += 0.5


@FAULTS.add("whole", check=TYPES, says="whole answer: created: Input should be a valid integer")
def tells_the_time_as_text(exchange: Exchange) -> None:
    """A gateway writes a date."""
    for event in exchange.events:
        event["created"] = "2026-11-25T15:00:00Z"


@FAULTS.add("stream", check=FRAMED, says="tool_calls[0].id comes again as '")
def repeats_the_ids_of_calls(exchange: Exchange) -> None:
    """Clients append what comes again, and no result fits the id."""
    ids: dict[int, Any] = {}
    for call in exchange.calls:
        call["id"] = ids.setdefault(call["index"], call.get("id"))


@FAULTS.add("stream", check=FRAMED, says="tool_calls[0].type is 'tool', not 'function'")
def calls_functions_tools(exchange: Exchange) -> None:
    """The type of a call is not one of OpenAI's."""
    for call in exchange.calls:
        if call.get("type"):
            call["type"] = "tool"


@FAULTS.add("stream", check=FRAMED, says="the first delta of tool_calls[0] has no type")
def tells_no_kind_of_call(exchange: Exchange) -> None:
    """A client that goes by the kind drops the call."""
    for call in exchange.calls:
        call.pop("type", None)


@FAULTS.add("stream", check=FRAMED, says="a call has the index 1, expected 0")
def numbers_its_calls_from_one(exchange: Exchange) -> None:
    """A list that is filled by index has a hole."""
    for call in exchange.calls:
        call["index"] += 1


@FAULTS.add("stream", check=FRAMED, says="2 chunks without choices have usage, expected one")
def counts_its_tokens_twice(exchange: Exchange) -> None:
    """Server and gateway each send the usage, and a bill adds them up."""
    exchange.events += [event for event in exchange.events if not event.get("choices")]


@FAULTS.add("stream", check=FRAMED, says="usage is in a chunk with choices, not in a separate")
def counts_its_tokens_beside_the_end(exchange: Exchange) -> None:
    """The usage rides on the last chunk, where no client looks for it."""
    if exchange.events and not exchange.events[-1].get("choices"):
        *_, last = (event for event in exchange.events if event.get("choices"))
        last["usage"] = exchange.events.pop()["usage"]


def several(exchange: Exchange) -> bool:
    """Return whether several choices were requested."""
    return int(exchange.body.get("n", 1)) > 1


@FAULTS.add("stream", check=CHOICES, says="is not one of the texts that the grammar allows: ")
def mixes_choices_up(exchange: Exchange) -> None:
    """A piece of one choice comes under the index of another."""
    texts = [choice for choice in exchange.choices if choice["delta"].get("content")]
    for choice in texts[2:4] if several(exchange) else ():
        choice["index"] = (choice["index"] + 1) % exchange.body["n"]


@FAULTS.add("stream", check=CHOICES, says="of the stream is choice ")
def swaps_choices(exchange: Exchange) -> None:
    """Choices are numbered as they end."""
    for choice in exchange.choices if several(exchange) else ():
        choice["index"] = (choice["index"] + 1) % exchange.body["n"]


@FAULTS.add("chat", check=CHOICES, says="choices were requested")
def knows_one_choice_only(exchange: Exchange) -> None:
    """A gateway takes the first choice for the answer."""
    for event in exchange.events:
        event["choices"] = [choice for choice in event["choices"] if choice["index"] == 0]


@FAULTS.add("stream", check=CHOICES, says="a chunk splits a character: delta.content is")
def splits_surrogate_pairs(exchange: Exchange) -> None:
    """A gateway that counts in UTF-16 cuts a character above U+FFFF in two."""
    events: list[dict[str, Any]] = []
    for event in exchange.events:
        choices = event.get("choices")
        content = (choices and choices[0]["delta"].get("content")) or ""
        wide = next((character for character in content if ord(character) > 0xFFFF), None)
        events.append(event)
        if wide:
            rest = copy.deepcopy(event)
            high, low = wide.encode("utf-16-be").hex(" ", 2).split()
            before, _, after = content.partition(wide)
            event["choices"][0]["delta"]["content"] = f"{before}<{high}>"
            rest["choices"][0]["delta"]["content"] = f"<{low}>{after}"
            rest["choices"][0] |= {"token_ids": None, "logprobs": None}
            events.append(rest)
    exchange.events = events
    exchange.frame = lambda data: re.sub("<(d[89a-f]..)>", r"\\u\1", f"data: {data}\n\n")


@FAULTS.add("stream", check=SCORES, says="the text came before its log-probabilities: ")
def sends_log_probabilities_late(exchange: Exchange) -> None:
    """They come with the next chunk."""
    waiting: Any = None
    for choice in exchange.choices:
        if exchange.scored and not several(exchange):
            choice["logprobs"], waiting = waiting, choice.get("logprobs")
    if waiting:
        scores = choice["logprobs"] or {"content": []}
        choice["logprobs"] = {"content": [*scores["content"], *waiting["content"]]}


@FAULTS.add("whole", check=SCORES, says=" tokens came, and ")
def loses_a_log_probability(exchange: Exchange) -> None:
    """The last token has none."""
    for choice in exchange.choices if exchange.scored else ():
        choice["logprobs"]["content"].pop()


@FAULTS.add("stream", check=SCORES, says="in the whole answer, ")
def scores_another_token(exchange: Exchange) -> None:
    """Another one's log-probability is sent."""
    for choice in exchange.choices if exchange.scored else ():
        for score in (choice.get("logprobs") or {"content": []})["content"]:
            score["logprob"] -= 3.0


@FAULTS.add("chat", check=SCORES, says="logprobs are of the text '")
def sends_the_probabilities_of_its_template(exchange: Exchange) -> None:
    """They are those of the text before the answer."""
    for choice in exchange.choices if exchange.scored and not several(exchange) else ():
        for score in (choice.get("logprobs") or {"content": []})["content"]:
            score |= {"token": "x", "bytes": [120]}
