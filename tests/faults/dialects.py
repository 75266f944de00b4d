"""Servers whose APIs disagree, or whose streams break the rules of one: the dialects gate fails."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from faults.fault import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange
    from faults.fault import Change

FAULTS = Faults("dialects")
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COMPLETIONS, COUNT = "/v1/completions", "/v1/messages/count_tokens"
ANSWERS = "every_dialect_answers"
APART = "prompts_of_one_request_keep_apart"
TYPES = "bodies_have_the_official_types"
ORDER = "events_come_in_order"
READS = "official_clients_read_everything"
STREAMS = "a_stream_is_its_whole_answer"
MEANS = "dialects_mean_the_same"
LIMIT = "a_limit_is_told"
TRIPS = "texts_come_back_from_their_tokens"
REFUSES = "wrong_requests_are_refused_in_each_apis_form"
TOKENS = "dialects_count_the_same_tokens"
REFUSED = 400
FEW_TOKENS = 500

Part = dict[str, Any]


def asked(path: str, check: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the requests of one dialect."""
    return _at(path, "request", check, says, lambda _: True)


def whole(path: str, check: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the whole answers of one dialect."""
    return _at(path, "anything", check, says, lambda exchange: not exchange.streamed)


def stream(path: str, check: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the streams of one dialect."""
    return _at(path, "anything", check, says, lambda exchange: exchange.streamed)


def refused(path: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the refusals of one dialect."""
    return _at(
        path, "anything", REFUSES, says, lambda exchange: exchange.status >= REFUSED, answered=False
    )


def _at(
    path: str,
    on: Any,
    check: str,
    says: str,
    applies: Callable[[Exchange], bool],
    *,
    answered: bool = True,
) -> Callable[[Change], Change]:
    def declare(change: Change) -> Change:
        @functools.wraps(change)
        def alter(exchange: Exchange) -> None:
            right = exchange.status < REFUSED or not answered
            if exchange.path == path and right and applies(exchange):
                change(exchange)

        return FAULTS.add(on, says=says, check=check)(alter)

    return declare


def events(exchange: Exchange, kind: str) -> list[Part]:
    """Return the events of a type."""
    return [event for event in exchange.events if event["type"] == kind]


def drop(exchange: Exchange, *kinds: str) -> None:
    """Leave out the events of some types."""
    exchange.events = [event for event in exchange.events if event["type"] not in kinds]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def forgets_instructions(exchange: Exchange) -> None:
    """The system prompt of a response is dropped."""
    exchange.body.pop("instructions", None)


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def forgets_the_system_prompt(exchange: Exchange) -> None:
    """The system prompt of a message is dropped."""
    exchange.body.pop("system", None)


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def reads_system_as_text_alone(exchange: Exchange) -> None:
    """A system prompt of blocks, as Claude Code sends it, is dropped."""
    if isinstance(exchange.body.get("system"), list):
        del exchange.body["system"]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def skips_the_developer(exchange: Exchange) -> None:
    """A role that the template does not know is left out."""
    given = exchange.body.get("input")
    if isinstance(given, list):
        exchange.body["input"] = [item for item in given if item.get("role") != "developer"]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def reads_the_first_part(exchange: Exchange) -> None:
    """Only the first part of a message is read."""
    for item in exchange.body.get("input") or ():
        if isinstance(item, dict) and isinstance(item.get("content"), list):
            item["content"] = item["content"][:1]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def empties_tool_results(exchange: Exchange) -> None:
    """The output of a function call does not reach the model."""
    for item in exchange.body.get("input") or ():
        if isinstance(item, dict) and item.get("type") == "function_call_output":
            item["output"] = ""


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def drops_a_second_tool_result(exchange: Exchange) -> None:
    """Only the first of several tool results in one message is kept."""
    for message in exchange.body.get("messages") or ():
        if isinstance(message["content"], list):
            results = [each for each in message["content"] if each["type"] == "tool_result"]
            for result in results[1:]:
                message["content"].remove(result)


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def drops_earlier_reasoning(exchange: Exchange) -> None:
    """Reasoning items of earlier turns are skipped."""
    given = exchange.body.get("input")
    if isinstance(given, list):
        exchange.body["input"] = [item for item in given if item.get("type") != "reasoning"]


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def drops_the_thinking_switch(exchange: Exchange) -> None:
    """The template's keywords are dropped on one route."""
    exchange.body.pop("chat_template_kwargs", None)


@asked(MESSAGES, MEANS, "tool_calls[0].name: chat 'get_time', messages 'get_weather'")
def takes_any_tool_choice_for_auto(exchange: Exchange) -> None:
    """A named tool is only one of those that may be called."""
    if (exchange.body.get("tool_choice") or {}).get("type") == "tool":
        exchange.body["tool_choice"] = {"type": "auto"}


@asked(RESPONSES, MEANS, "tool_calls: ")
def forgets_that_a_tool_is_required(exchange: Exchange) -> None:
    """`required` is read as `auto`."""
    if exchange.body.get("tool_choice") == "required":
        exchange.body["tool_choice"] = "auto"


@asked(MESSAGES, MEANS, "tool_calls: 0 in the chat answer (none)")
def calls_tools_that_are_forbidden(exchange: Exchange) -> None:
    """`none` is read as `auto`."""
    if (exchange.body.get("tool_choice") or {}).get("type") == "none":
        exchange.body["tool_choice"] = {"type": "auto"}


@asked(MESSAGES, MEANS, "tool_calls: 1 in the chat answer (get_weather), 3 in the messages one")
def calls_in_parallel_all_the_same(exchange: Exchange) -> None:
    """`disable_parallel_tool_use` is dropped."""
    choice = exchange.body.get("tool_choice")
    if choice and choice.pop("disable_parallel_tool_use", None) and choice == {"type": "auto"}:
        del exchange.body["tool_choice"]


@asked(MESSAGES, MEANS, "stop string: chat ")
def ignores_stop_sequences(exchange: Exchange) -> None:
    """Anthropic's name for stop strings is not known."""
    exchange.body.pop("stop_sequences", None)


@asked(RESPONSES, MEANS, "tool_calls[0].name: chat 'get_time', responses 'get_weather'")
def takes_a_named_function_for_auto(exchange: Exchange) -> None:
    """A named function is only one of those that may be called."""
    if (exchange.body.get("tool_choice") or {}) and isinstance(exchange.body["tool_choice"], dict):
        exchange.body["tool_choice"] = "auto"


@asked(MESSAGES, LIMIT, "tokens, and the limit is ")
def raises_the_limit(exchange: Exchange) -> None:
    """A gateway raises small limits."""
    exchange.body["max_tokens"] = max(exchange.body.get("max_tokens", 0), FEW_TOKENS)


@asked(RESPONSES, MEANS, "tool_calls: 1 in the chat answer (get_weather), 3 in the responses one")
def forgets_one_call_at_a_time(exchange: Exchange) -> None:
    """`parallel_tool_calls` is dropped."""
    exchange.body.pop("parallel_tool_calls", None)


@asked(RESPONSES, MEANS, "reasoning: ")
def thinks_although_it_is_not_to(exchange: Exchange) -> None:
    """`reasoning.effort` is dropped."""
    exchange.body.pop("reasoning", None)


@asked(MESSAGES, MEANS, "reasoning: ")
def thinks_although_thinking_is_disabled(exchange: Exchange) -> None:
    """`thinking` is dropped."""
    exchange.body.pop("thinking", None)


@asked(RESPONSES, MEANS, "content: ")
def forgets_the_format_of_a_response(exchange: Exchange) -> None:
    """`text.format` is dropped."""
    exchange.body.pop("text", None)


@asked(MESSAGES, MEANS, "content: ")
def forgets_the_format_of_a_message(exchange: Exchange) -> None:
    """`output_config` is dropped."""
    exchange.body.pop("output_config", None)


@asked(COMPLETIONS, MEANS, "stop string: chat ")
def ignores_stop_strings_of_completions(exchange: Exchange) -> None:
    """The older API knows no stop strings."""
    exchange.body.pop("stop", None)
