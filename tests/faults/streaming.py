"""Servers whose streamed and whole answers differ: the streaming gate fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("streaming")
SAME = "streamed_answer_equals_the_whole"
ANSWERED = "every_request_is_answered"
FRAMED = "stream_is_framed_as_clients_expect"


def first_chat(exchange: Exchange) -> bool:
    """Return whether this is the short chat by which a server is found to be ready."""
    return int(exchange.body.get("max_tokens") or 0) < 100


def move(part: dict[str, Any], origin: str, to: str) -> None:
    """Put a text into the other field."""
    if part.get(origin):
        part[to] = (part.get(to) or "") + part[origin]
        part[origin] = None


@FAULTS.add(
    "stream", check=SAME, says="reasoning: empty in the streamed answer", also=("reasoning",)
)
def streams_reasoning_as_content(exchange: Exchange) -> None:
    """The parser reads the prompt in one mode only (vllm#29408)."""
    for part in exchange.parts:
        move(part, "reasoning", "content")


@FAULTS.add("stream", check=SAME, says="content: empty in the streamed answer", also=("tools",))
def streams_content_as_reasoning(exchange: Exchange) -> None:
    """With thinking off the answer comes as reasoning (vllm#40816)."""
    for part in exchange.parts:
        move(part, "content", "reasoning")


@FAULTS.add(
    "whole",
    check=SAME,
    says="content: empty in the whole answer",
    also=("reasoning", "structured", "tools"),
)
def gives_content_as_reasoning(exchange: Exchange) -> None:
    """The other way round: a template whose default is off, and no switch sent (vllm#53284)."""
    for part in exchange.parts:
        move(part, "content", "reasoning")


@FAULTS.add("stream", check=SAME, says="reasoning: differs from character", also=("stop",))
def streams_the_end_of_reasoning_as_content(exchange: Exchange) -> None:
    """The thinking ends one token early in a stream."""
    thoughts = [part for part in exchange.parts if part.get("reasoning")]
    for part in thoughts[-3:]:
        move(part, "reasoning", "content")


@FAULTS.add("stream", check=SAME, says=".arguments: whole", also=("tools",))
def drops_a_piece_of_the_arguments(exchange: Exchange) -> None:
    """A delta with two parts loses one (vllm#34449)."""
    pieces = [call for call in exchange.calls if not call["function"].get("name")]
    if pieces:
        pieces[len(pieces) // 2]["function"]["arguments"] = ""


@FAULTS.add("stream", check=SAME, says=".arguments: whole", also=("tools",))
def streams_no_arguments(exchange: Exchange) -> None:
    """Empty arguments while the finish reason is tool_calls."""
    for call in exchange.calls:
        call["function"].pop("arguments", None)


@FAULTS.add(
    "stream",
    check=SAME,
    says=".name: whole 'get_weather', streamed 'get_weatherget_weather'",
    also=("tools",),
)
def names_a_call_twice(exchange: Exchange) -> None:
    """The name comes again with the arguments, and clients append it."""
    names: dict[int, str] = {}
    for call in exchange.calls:
        name = names.setdefault(call["index"], call["function"].get("name"))
        if call["function"].get("arguments") and name:
            call["function"]["name"] = name
            names[call["index"]] = ""


@FAULTS.add(
    "stream", check=SAME, says="tool_calls: 1 in the whole answer (get_time), 0 in the streamed one"
)
def drops_calls_without_arguments(exchange: Exchange) -> None:
    """A zero-argument call is never sent (vllm#44326)."""
    names = {call["index"]: call["function"].get("name") for call in reversed([*exchange.calls])}
    for part in exchange.parts:
        calls = part.get("tool_calls")
        if calls and all(names[call["index"]] == "get_time" for call in calls):
            part.pop("tool_calls")


@FAULTS.add("stream", check=SAME, says="tool_calls: 3 in the whole answer")
def gives_all_calls_one_index(exchange: Exchange) -> None:
    """Parallel calls run into one."""
    for call in exchange.calls:
        call["index"] = 0


@FAULTS.add("stream", check=SAME, says=".id present: whole True, streamed False", also=("tools",))
def gives_calls_no_id(exchange: Exchange) -> None:
    """A tool's result cannot be sent back without one."""
    for call in exchange.calls:
        call.pop("id", None)


@FAULTS.add(
    "whole",
    check=SAME,
    says="tool_calls: 0 in the whole answer (none), 1 in the streamed one",
    also=("reasoning", "tools"),
)
def gives_calls_as_text(exchange: Exchange) -> None:
    """The tool parser gives up on the whole text."""
    for choice in exchange.choices:
        calls = choice["message"].get("tool_calls")
        if calls:
            choice["message"] |= {"tool_calls": [], "content": "<tool_call>\n<function=get_"}
            choice["finish_reason"] = "stop"


@FAULTS.add("stream", check=SAME, says="content: differs from character", also=("tools", "stop"))
def sends_a_chunk_twice(exchange: Exchange) -> None:
    """A retry between gateway and server."""
    positions = [i for i, event in enumerate(exchange.events) if _content(event)]
    if positions:
        exchange.events.insert(positions[-1], exchange.events[positions[-1]])


@FAULTS.add("stream", check=SAME, says="content: differs from character", also=("stop", "tools"))
def swallows_the_last_content(exchange: Exchange) -> None:
    """Text that was buffered for a stop string is never flushed."""
    positions = [i for i, event in enumerate(exchange.events) if _content(event)]
    if positions:
        del exchange.events[positions[-1]]


@FAULTS.add("stream", check=SAME, says="content: differs from character", also=("stop", "tools"))
def swaps_two_chunks(exchange: Exchange) -> None:
    """Chunks overtake each other."""
    positions = [i for i, event in enumerate(exchange.events) if _content(event)]
    for choice in exchange.choices:
        choice["token_ids"] = None  # in their order they would be another answer's
    if len(positions) > 2:
        number, next_number = positions[-2:]
        events = exchange.events
        events[number], events[next_number] = events[next_number], events[number]


@FAULTS.add("stream", check=SAME, says="content: differs from character")
def cuts_characters_apart(exchange: Exchange) -> None:
    """Each piece is decoded for itself."""
    for part in exchange.parts:
        if part.get("content") and not part["content"].isascii():
            part["content"] = "\N{REPLACEMENT CHARACTER}" * len(part["content"].encode())


@FAULTS.add(
    "stream", check=SAME, says="finish_reason: whole 'tool_calls', streamed 'stop'", also=("tools",)
)
def says_stop_for_tool_calls(exchange: Exchange) -> None:
    """A client that looks at the finish reason never runs the tool."""
    for choice in exchange.choices:
        if choice.get("finish_reason") == "tool_calls":
            choice["finish_reason"] = "stop"


@FAULTS.add(
    "stream", check=SAME, says="finish_reason: whole 'stop', streamed None", also=("stop", "tools")
)
def gives_no_finish_reason(exchange: Exchange) -> None:
    """The last chunk gets lost."""
    for choice in exchange.choices:
        choice["finish_reason"] = None


@FAULTS.add(
    "whole", check=SAME, says="finish_reason: whole 'length', streamed 'stop'", also=("stop",)
)
def says_length_for_stop(exchange: Exchange) -> None:
    """The whole answer looks cut short."""
    for choice in exchange.choices:
        if choice["finish_reason"] == "stop":
            choice["finish_reason"] = "length"


@FAULTS.add(
    "stream",
    check=FRAMED,
    says="usage was requested (stream_options) and is missing",
    also=("stop", "tools"),
)
def counts_no_tokens_in_streams(exchange: Exchange) -> None:
    """A gateway takes the last event, which has no choices, for empty."""
    exchange.events[:] = [event for event in exchange.events if event.get("choices")]


@FAULTS.add("stream", check=SAME, says="usage: whole Usage(", also=("stop", "tools"))
def counts_chunks_for_tokens(exchange: Exchange) -> None:
    """The bill is wrong in one mode."""
    for event in exchange.events:
        if event.get("usage"):
            event["usage"]["completion_tokens"] = len(exchange.events)


@FAULTS.add("stream", check=ANSWERED, says="APIConnectionError", also=("stop", "tools"))
def breaks_streams_off(exchange: Exchange) -> None:
    """The connection breaks in the middle of an answer."""
    if not first_chat(exchange):
        exchange.cut_after = 3


@FAULTS.add(
    "stream", check=ANSWERED, says="EngineCore encountered an issue", also=("stop", "tools")
)
def ends_streams_in_an_error(exchange: Exchange) -> None:
    """The engine dies in the middle of an answer."""
    if not first_chat(exchange):
        exchange.events[3:] = [{"error": {"message": "EngineCore encountered an issue."}}]


def _content(event: dict[str, Any]) -> bool:
    return any(choice["delta"].get("content") for choice in event.get("choices", ()))
