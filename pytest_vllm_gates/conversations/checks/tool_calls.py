"""Are tool calls what a client can act on: declared, valid, complete and asked for?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.facts.answer import Answer

SHOWN = 120


def valid(answer: Answer | None, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every call to a tool nobody declared or with arguments it cannot take.

    An answer cut by the limit of tokens is not judged: its last call may be half there.
    """
    import jsonschema  # noqa: PLC0415 - heavy, and few runs get here

    if answer is None or answer.finish_reason == "length":
        return
    declared = {
        tool["function"]["name"]: tool["function"].get("parameters", {})
        for tool in request.get("tools", ())
    }
    for index, call in enumerate(answer.tool_calls):
        where = f"tool_calls[{index}]"
        if call.name not in declared:
            yield f"{where}.name is {call.name!r}; declared are {', '.join(declared) or 'none'}"
            continue
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError) as error:
            yield f"{where}.arguments is no JSON ({error}): {call.arguments[:SHOWN]!r}"
            continue
        if not isinstance(arguments, dict):
            yield f"{where}.arguments is no object: {call.arguments[:SHOWN]!r}"
            continue
        validator = jsonschema.Draft202012Validator(declared[call.name])
        for fault in validator.iter_errors(arguments):
            yield f"{where}.arguments{fault.json_path[1:]}: {fault.message}"


def one_valid_call(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield what keeps an answer from being a valid call of a declared tool."""
    if answer.finish_reason == "length":
        yield "the answer was cut by the limit of tokens"
    elif not answer.tool_calls:
        yield f"no call came; content is {answer.content[:SHOWN]!r}"
    yield from valid(answer, request)


def identified(answer: Answer) -> Iterator[str]:
    """Yield a sentence for every call without an id, or with another's."""
    ids = [call.id for call in answer.tool_calls]
    for index, one in enumerate(ids):
        if not one:
            yield f"tool_calls[{index}].id is missing: its result cannot be sent back"
        elif one in ids[:index]:
            yield f"tool_calls[{index}].id is {one!r}, which is another call's"


def one_at_a_time(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with an answer that was to call one tool and no more.

    Of an answer cut by the limit of tokens only that it calls no second one is asked.
    """
    count, cut = len(answer.tool_calls), answer.finish_reason == "length"
    if count > 1 or (count == 0 and not cut):
        names = _names(answer) or "nothing"
        yield f"parallel_tool_calls is false, and {count} calls came: {names}"
    elif answer.finish_reason != "tool_calls" and not cut:
        yield f"finish_reason is {answer.finish_reason!r}, and there is a call"
    yield from valid(answer, request)


def finish(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence when calls and finish_reason contradict each other.

    For a call that the request named OpenAI's API says `stop`, and so may a server.
    """
    whole = exchange.whole
    if whole is None:
        return
    if whole.finish_reason == "tool_calls" and not whole.tool_calls:
        yield "finish_reason is 'tool_calls', and there is no call"
    named = exchange.cell.tools == "named"
    if whole.tool_calls and whole.finish_reason == "stop" and not named:
        yield f"finish_reason is 'stop', and there are calls: {_names(whole)}"


def chosen(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence when the answer does not do what tool_choice asks."""
    whole, choice = exchange.whole, exchange.cell.tools
    if whole is None:
        return
    if choice in ("none", "undeclared") and whole.tool_calls:
        yield f"no tool was to be called ({choice}), and {_names(whole)} is"
    if exchange.stopped or exchange.cut:
        return
    if choice == "required" and not whole.tool_calls:
        yield f"a call was required, and none came; content is {whole.content[:SHOWN]!r}"
    if choice == "named":
        name = exchange.request["tool_choice"]["function"]["name"]
        if [call.name for call in whole.tool_calls] != [name]:
            yield f"{name} was to be called, once, and {_names(whole) or 'nothing'} is"


def _names(answer: Answer) -> str:
    return ", ".join(call.name for call in answer.tool_calls)
