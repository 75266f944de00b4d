"""The Completions API: the prompt of a chat as tokens, and the meaning of an answer.

https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.answer import Answer
from pytest_vllm_gates.dialects.notation import NoPlace, text, usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATH = "/v1/completions"


def request(chat: Mapping[str, Any], prompt_ids: Sequence[int]) -> dict[str, Any]:
    """Return a chat request for the Completions API; raises `NoPlace` if a part has no place."""
    if not prompt_ids:
        raise NoPlace("the server does not return the tokens of a chat's prompt")
    body: dict[str, Any] = {
        "prompt": list(prompt_ids),
        "max_tokens": chat["max_tokens"],
        "temperature": chat["temperature"],
        "return_token_ids": True,
    }
    if stop := chat.get("stop"):
        body["stop"] = stop
    return body


def answer(body: Mapping[str, Any]) -> Answer:
    """Return the meaning of a completion: all its text is content, because no parser runs."""
    (choice,) = body["choices"]
    return Answer(
        reasoning="",
        content=text(choice["text"]),
        tool_calls=(),
        finish_reason=choice["finish_reason"],
        usage=usage(body.get("usage"), ("prompt_tokens",), "completion_tokens"),
        stop_reason=choice.get("stop_reason"),
        token_ids=tuple(choice.get("token_ids") or ()),
    )
