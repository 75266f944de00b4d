"""Judges who answered, when, and to what: the model, the id, the time, usage, and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import records, shown
from pytest_vllm_gates.conversations.checks import envelope, shared_ids
from pytest_vllm_gates.dialects import checks
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


def findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield what is wrong with each answer, then the ids that answers of one dialect share."""
    named, spoken = [], []
    for _, reply in dialogues.answered:
        case = reply.finding_case
        for sentence in faults(reply, dialogues.names):
            yield Finding(case, sentence)
        named += [(record.get("id"), case) for record in _records(reply)[:1]]
        spoken += [(answer, case) for answer in [checks.meaning(reply)] if answer]
    yield from shared_ids.of_answers(named)
    yield from shared_ids.of_calls(spoken)


def _records(reply: Reply) -> list[dict[str, Any]]:
    """Return what names a model: the body, or what the events of a stream have of it."""
    bodies = [reply.body] if reply.mode == WHOLE else [event.data for event in reply.events]
    return [
        record
        for body in bodies
        for record in (body, body.get("response"), body.get("message"))
        if isinstance(record, dict) and "model" in record
    ]


def faults(reply: Reply, names: Sequence[str]) -> Iterator[str]:
    """Yield where an answer has no id, or another model than the one that was asked for."""
    named = _records(reply)
    if not named:
        yield "no model is named"
        return
    for record in named:
        if record["model"] not in names:
            yield f"model: {names[0]!r} was asked for, {shown(record['model'])} answers"
            return
    if not named[0].get("id"):
        yield "the answer has no id"
    yield from envelope.faults(named[-1])
    if reply.dialect == RESPONSES:
        yield from _echo_faults(reply.request, named[-1])


def _echo_faults(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a response tells other settings than were requested."""
    for name in ECHOED:
        if name in request and name in response and response[name] != request[name]:
            wanted, told = shown(request[name]), shown(response[name])
            yield f"{name}: {wanted} was requested, and the response says {told}"
    tools = [len(records(each.get("tools"))) for each in (request, response)]
    if tools[0] != tools[1]:
        yield f"{tools[0]} tools were declared, and the response names {tools[1]}"
