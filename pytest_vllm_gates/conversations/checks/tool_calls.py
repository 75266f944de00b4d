"""Checks tool calls: declared, valid, unaltered, and valid as often as recorded when sampled."""

from __future__ import annotations

import json
import math
import re
from math import comb
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.conversations.checks.agreement import differences
from pytest_vllm_gates.goldens import settings_golden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer, Exchange
    from pytest_vllm_gates.conversations.forced_calls import ForcedReply

SHOWN = 120


def valid(answer: Answer | None, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every call of an undeclared tool or with invalid arguments.

    An answer that the token limit cut is not judged: its last call may be incomplete.
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
            arguments = syntax.json_value(call.arguments)
        except syntax.BadSyntaxError as error:
            yield f"{where}.arguments is not JSON ({error}): {call.arguments[:SHOWN]!r}"
            continue
        if not isinstance(arguments, dict):
            yield f"{where}.arguments is not an object: {call.arguments[:SHOWN]!r}"
            continue
        validator = jsonschema.Draft202012Validator(declared[call.name])
        for fault in validator.iter_errors(arguments):
            yield f"{where}.arguments{fault.json_path[1:]}: {fault.message}"


BLANKS = 32
"""Characters of white space at a cut answer's end that do not belong to a call."""


def out_of_schema(answer: Answer, request: Mapping[str, Any], raw: str) -> Iterator[str]:
    """Yield a sentence for each argument that a strict tool does not accept.

    An answer that reaches the token limit was cut, in spite of its finish reason: its only fault
    is endless white space in its text, `raw`.
    """
    used = answer.usage.completion_tokens if answer.usage else 0
    if answer.finish_reason != "length" and used < request["max_tokens"]:
        yield from valid(answer, request)
        return
    white = len(raw) - len(raw.rstrip())
    if white >= BLANKS:
        yield f"the call ends in {white} characters of white space, at the limit"


def other_than_named(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if the answer does not call the tool that the request names."""
    name, names = request["tool_choice"]["function"]["name"], _names(answer)
    if answer.finish_reason != "length" and [call.name for call in answer.tool_calls] != [name]:
        yield f"expected one call of {name}, got {names or 'nothing'}"


def one_valid_call(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why an answer is not a valid call of a declared tool."""
    if answer.finish_reason == "length":
        yield "the token limit cut the answer"
    elif not answer.tool_calls:
        yield f"no call came; content is {answer.content[:SHOWN]!r}"
    yield from valid(answer, request)


def identified(answer: Answer) -> Iterator[str]:
    """Yield a sentence for every call without an id, or with the id of another call."""
    ids = [call.id for call in answer.tool_calls]
    for index, call_id in enumerate(ids):
        if not call_id:
            yield f"tool_calls[{index}].id is missing: its result cannot be sent back"
        elif call_id in ids[:index]:
            yield f"tool_calls[{index}].id is {call_id!r}, which is another call's"


def one_at_a_time(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of an answer that has to make exactly one call.

    An answer that the token limit cut only must not make a second call.
    """
    count, cut = len(answer.tool_calls), answer.finish_reason == "length"
    if count > 1 or (count == 0 and not cut):
        names = _names(answer) or "nothing"
        yield f"parallel_tool_calls is false, and {count} calls came: {names}"
    elif answer.finish_reason != "tool_calls" and not cut:
        yield f"finish_reason is {answer.finish_reason!r}, and the answer has a call"
    yield from valid(answer, request)


def finish(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if calls and finish_reason contradict each other.

    For a call that the request names, OpenAI's API sends `stop`, and a server may do so too.
    """
    if exchange.whole is not None:
        yield from contradiction(exchange.whole, named=exchange.cell.tools == "named")


def contradiction(answer: Answer, *, named: bool) -> Iterator[str]:
    """Yield like `finish`; `named` is whether the request names the tool to call."""
    if answer.finish_reason == "tool_calls" and not answer.tool_calls:
        yield "finish_reason is 'tool_calls', and the answer has no call"
    if answer.tool_calls and answer.finish_reason == "stop" and not named:
        yield f"finish_reason is 'stop', and the answer has calls: {_names(answer)}"


def chosen(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if the answer does not follow tool_choice."""
    answer, choice = exchange.whole, exchange.cell.tools
    if answer is None:
        return
    if choice in ("none", "undeclared") and answer.tool_calls:
        yield f"no tool may be called ({choice}), and the answer calls {_names(answer)}"
    if exchange.stopped or exchange.cut:
        return
    if choice == "required" and not answer.tool_calls:
        yield f"a call was required, and none came; content is {answer.content[:SHOWN]!r}"
    if choice == "named":
        name = exchange.request["tool_choice"]["function"]["name"]
        if [call.name for call in answer.tool_calls] != [name]:
            yield f"expected one call of {name}, got {_names(answer) or 'nothing'}"


def _names(answer: Answer) -> str:
    return ", ".join(call.name for call in answer.tool_calls)


SHOWN_VALUE = 100


def altered_arguments(reply: ForcedReply) -> Iterator[str]:
    """Yield how the call of a forced reply differs from the forced call."""
    if reply.exact:
        calls = reply.whole.tool_calls
        if len(calls) != 1:
            yield f"whole: one call was written and {len(calls)} came"
        else:
            yield from _altered_values(_values(calls[0].arguments), reply.arguments)
    name = "wide" if reply.streamed.is_wide else "streamed"
    for sentence in differences(reply.whole, reply.streamed, ("whole", name)):
        yield f"{name}: {sentence}"
    for sentence in differences(reply.whole, reply.widened, ("whole", "wide")):
        yield f"wide: {sentence}"


def _altered_values(actual: dict[str, Any], written: Any) -> Iterator[str]:
    for name, value in written.items():
        if name not in actual:
            yield f"whole: {name} is missing, written was {_shown(value)}"
        elif not _same(actual[name], value):
            yield f"whole: {name} is {_shown(actual[name])}, written was {_shown(value)}"
    for name in actual.keys() - written.keys():
        yield f"whole: {name} was not written, and is {_shown(actual[name])}"


def _values(arguments: str) -> dict[str, Any]:
    """Return a call's arguments; none if they are not an object."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _same(actual: Any, written: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, and neither equals true."""
    if isinstance(written, dict) and isinstance(actual, dict):
        return actual.keys() == written.keys() and all(
            _same(actual[name], value) for name, value in written.items()
        )
    if isinstance(written, list) and isinstance(actual, list):
        return len(actual) == len(written) and all(map(_same, actual, written))
    if isinstance(written, bool) or isinstance(actual, bool):
        return actual is written
    return bool(actual == written)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(
            value
            if len(value) <= SHOWN_VALUE
            else f"{value[:SHOWN_VALUE]}… ({len(value)} characters)"
        )
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "something deeply nested"
    return text if len(text) <= SHOWN_VALUE else f"{text[:SHOWN_VALUE]}…"


LEAST_CHANCE = 0.001
"""A run fails if its result has a smaller chance than this under the recorded rate."""
COUNT_LINE = re.compile(r"^(valid|of) = (\d+)$", re.MULTILINE)


def chance_of_fewer(valid: int, of: int, valid_before: int, of_before: int) -> float:
    """Return the chance of `valid` or fewer of `of` if both true rates are the same.

    Fisher's exact test, one-sided: given how many of all answers were valid, the number among the
    later ones is hypergeometric (R. A. Fisher, "On the interpretation of chi-squared from
    contingency tables", 1922).
    """
    total, total_valid = of + of_before, valid + valid_before
    ways = comb(total, of)
    fewest = max(0, of - (total - total_valid))
    cases = (
        comb(total_valid, some) * comb(total - total_valid, of - some)
        for some in range(fewest, valid + 1)
    )
    return sum(cases) / ways


def interval(times: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the interval of the rate behind `times` of `of`, at 95 % confidence by default.

    Wilson's score interval (E. B. Wilson, "Probable inference, the law of succession, and
    statistical inference", 1927): unlike the usual one it is valid for few tries and for rates near
    0 and 1.
    """
    rate, more = times / of, z * z / of
    middle = rate + more / 2
    reach = z * math.sqrt(rate * (1 - rate) / of + more / (4 * of))
    low, high = ((middle + sign * reach) / (1 + more) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def golden_text(valid: int, of: int) -> str:
    """Return the golden's text of a rate."""
    return settings_golden("sampled answers that were valid tool calls", {"valid": valid, "of": of})


def parse_golden(text: str) -> tuple[int, int]:
    """Return (valid, of) from a golden's text; raises `ValueError` if it has none."""
    counts = {name: int(count) for name, count in COUNT_LINE.findall(text)}
    if counts.keys() != {"valid", "of"} or counts["valid"] > counts["of"]:
        raise ValueError(f"no rate such as 'valid = 20' and 'of = 20' in {text!r}")
    return counts["valid"], counts["of"]
