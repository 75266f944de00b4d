"""Judges the metadata of an answer: the model, the id, the time, usage, and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import record, records, shown
from pytest_vllm_gates.conversations.checks import envelope, shared_ids
from pytest_vllm_gates.dialects import checks
from pytest_vllm_gates.dialects.events_responses import UNFINISHED, text_of
from pytest_vllm_gates.dialects.types import RESPONSES, WHOLE
from pytest_vllm_gates.outcomes import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.dialects.types import Dialogues, Reply

ECHOED = (
    "temperature", "max_output_tokens", "instructions", "parallel_tool_calls", "tool_choice",
    "metadata",
)  # fmt: skip
"""Settings that a response repeats (https://platform.openai.com/docs/api-reference/responses)."""
ECHOED_WITHIN = (("text", "format", "type"), ("text", "format", "name"), ("reasoning", "effort"))
"""Nested settings, each by its path."""


def findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield the faults of each answer, then the ids that answers of one dialect share."""
    named, spoken = [], []
    for _, reply in dialogues.answered:
        case = reply.finding_case
        for sentence in faults(reply, dialogues.names):
            yield Finding(case, sentence)
        named += [(each.get("id"), case) for each in _records(reply)[:1]]
        spoken += [(answer, case) for answer in [checks.meaning(reply)] if answer]
    yield from shared_ids.of_answers(named)
    yield from shared_ids.of_calls(spoken)


def _records(reply: Reply) -> list[dict[str, Any]]:
    """Return the records that name a model: the body, or parts of a stream's events."""
    bodies = [reply.body] if reply.mode == WHOLE else [event.data for event in reply.events]
    return [
        each
        for body in bodies
        for each in (body, body.get("response"), body.get("message"))
        if isinstance(each, dict) and "model" in each
    ]


def faults(reply: Reply, names: Sequence[str]) -> Iterator[str]:
    """Yield a missing id, a model that was not requested, and wrong settings of an answer."""
    named = _records(reply)
    if not named:
        yield "the answer names no model"
        return
    for each in named:
        if each["model"] not in names:
            yield f"model: {names[0]!r} was requested, the answer names {shown(each['model'])}"
            return
    if not named[0].get("id"):
        yield "the answer has no id"
    yield from envelope.faults(named[-1])
    if reply.dialect == RESPONSES:
        yield from _echo_faults(reply.request, named[-1])
        yield from _state_faults(named[-1])


def _echo_faults(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[str]:
    """Yield settings of a response that differ from the request."""
    for name in ECHOED:
        if name in request and name in response and response[name] != request[name]:
            wanted, told = shown(request[name]), shown(response[name])
            yield f"{name}: {wanted} was requested, and the response has {told}"
    for path in ECHOED_WITHIN:
        requested, answered = (_within(each, path) for each in (request, response))
        if None not in (requested, answered) and requested != answered:
            wanted, told = shown(requested), shown(answered)
            yield f"{'.'.join(path)}: {wanted} was requested, and the response has {told}"
    tools = [len(records(each.get("tools"))) for each in (request, response)]
    if tools[0] != tools[1]:
        yield f"{tools[0]} tools were declared, and the response has {tools[1]}"


def _within(body: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path of names; None without one."""
    *above, last = path
    for name in above:
        body = record(body.get(name))
    return body.get(last)


def _state_faults(response: Mapping[str, Any]) -> Iterator[str]:
    """Yield contradictions in a response's status, or about its reasoning."""
    output = records(response.get("output"))
    if response.get("status") == "completed":
        for name in ("error", "incomplete_details"):
            if response.get(name):
                yield f"the response is completed, and has {name}: {shown(response[name])}"
        for item in output:
            if item.get("status") in UNFINISHED:
                kind, status = item.get("type"), item["status"]
                yield f"the response is completed, and its {kind} item has the status {status!r}"
    counted = record(record(response.get("usage")).get("output_tokens_details"))
    if counted.get("reasoning_tokens") == 0 and any(
        item.get("type") == "reasoning" and text_of(item) for item in output
    ):
        yield "usage counts no reasoning_tokens, and the answer has reasoning"
