"""Requests whose answers can be told from any other's, whatever model gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

NONCE_TOKENS = 1024


def question(family: Family, text: str, answer_tokens: int) -> dict[str, Any]:
    """Return a question; thinking is off where it can be, so that answers are short."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": answer_tokens,
    }
    if kwargs := family.thinking_kwargs("off"):
        body["chat_template_kwargs"] = kwargs
    return body


def ticket(family: Family, beginning: str, nonce: str, *, streamed: bool) -> dict[str, Any]:
    """Return a request whose answer can only be its own nonce."""
    text = f"ticket {nonce}"
    body = question(family, f"{beginning}Say {text}.", NONCE_TOKENS)
    return {**body, "structured_outputs": {"choice": [text]}, "stream": streamed}
