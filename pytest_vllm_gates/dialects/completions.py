"""The Completions API: the prompt of a chat as its tokens, and what an answer in it means.

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
    """Return a chat request as one of the Completions API; raises `NoPlace` for what has none."""
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
    """Return what a completion means: all of its text is content, for nothing parses it."""
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
