"""The reference for the other dialects from a chat's answer: ties, limits and stop strings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import form
from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.client.sameness import MARGIN_NATS
from pytest_vllm_gates.conversations.checks.agreement import canonical
from pytest_vllm_gates.dialects.notation import text, usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.dialects.cases import DialectCase

YARDSTICK = {"return_token_ids": True, "logprobs": True, "top_logprobs": 2}
"""Additional fields of the request for such a chat."""
WORD = re.compile(r"[A-Za-z]{4,}")
"""A word that can be a stop string."""


def chat_answer(body: Mapping[str, Any]) -> Answer:
    """Return the meaning of a chat completion; raises `ValueError` and similar for another form."""
    choice = body["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls") or ()
    return Answer(
        reasoning=text(message.get("reasoning") or message.get("reasoning_content")),
        content=text(message.get("content")),
        tool_calls=tuple(
            ToolCall(
                text(call["function"]["name"]),
                text(call["function"]["arguments"]),
                text(call.get("id")),
            )
            for call in calls
        ),
        finish_reason=text(choice["finish_reason"]) or None,
        usage=usage(body.get("usage"), ("prompt_tokens",), "completion_tokens"),
        stop_reason=choice.get("stop_reason"),
        token_ids=tuple(form.token_ids(choice.get("token_ids") or [], "token_ids")),
    )


def keeps_choice(case: DialectCase, answer: Answer) -> bool:
    """Return whether a chat calls a required tool; otherwise it cannot be a reference."""
    if case.tool_choice in {"", "auto", "none"}:
        return True
    texts = [canonical(call.arguments) for call in answer.tool_calls]
    return bool(texts) and all(text.startswith("{") and text.endswith("}") for text in texts)


def late_word(answer: Answer | None) -> str:
    """Return a word of an answer's second half that is not in its reasoning; '' for none."""
    if answer is None:
        return ""
    words = [word for word in WORD.findall(answer.content) if word not in answer.reasoning]
    return words[len(words) // 2] if words else ""


def cut_to(answer: Answer | None, case: DialectCase) -> int:
    """Return the limit that cuts an answer as the case requires; 0 for no limit."""
    if not case.short_of or answer is None or answer.usage is None:
        return 0
    return max(0, answer.usage.completion_tokens - case.short_of)


def near_tie(body: Mapping[str, Any]) -> bool:
    """Return whether two tokens were about equally likely somewhere in an answer."""
    places = (body["choices"][0].get("logprobs") or {}).get("content") or ()
    for place in places:
        top = sorted((each["logprob"] for each in place.get("top_logprobs") or ()), reverse=True)
        if len(top) > 1 and top[0] - top[1] <= MARGIN_NATS:
            return True
    return False
