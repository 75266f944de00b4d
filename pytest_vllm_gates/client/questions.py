"""Requests with a nonce and the check of their answers, and the questions of `isolation.toml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.completion import Completion

NONCE_TOKENS = 1024


def question(family: Family, text: str, answer_tokens: int) -> dict[str, Any]:
    """Return a question; thinking is off if it can be, so that answers are short."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": answer_tokens,
    }
    if kwargs := family.thinking_kwargs("off"):
        body["chat_template_kwargs"] = kwargs
    return body


def ticket(family: Family, beginning: str, nonce: str, *, streamed: bool) -> dict[str, Any]:
    """Return a request whose grammar allows only its own nonce as the answer."""
    text = f"ticket {nonce}"
    body = question(family, f"{beginning}Say {text}.", NONCE_TOKENS)
    return {**body, "structured_outputs": {"choice": [text]}, "stream": streamed}


def ticket_faults(completion: Completion, nonces: Sequence[str], own: int) -> list[str]:
    """Return the faults of the answer to request number `own`, one sentence each."""
    if completion.error:
        return [f"no answer: {completion.error}"]
    sentences = [
        f"the answer contains {nonce!r}, which is request {number + 1}'s: {completion.shown}"
        for number, nonce in enumerate(nonces)
        if number != own and nonce in completion.text
    ]
    if nonces[own] not in completion.text:
        sentences.append(f"the answer does not contain its own {nonces[own]!r}: {completion.shown}")
    return sentences


def ended_in_thinking(completion: Completion) -> bool:
    """Return whether an answer ended before the end of its thinking, so that no grammar applied."""
    return bool(completion.reasoning and not completion.content and not completion.calls)


def holds_anothers(completion: Completion, nonces: Sequence[str], own: int) -> bool:
    """Return whether the answer to request number `own` contains another request's nonce."""
    return any(nonce in completion.text for number, nonce in enumerate(nonces) if number != own)


FILE = data.FOLDER / "isolation.toml"


class Questions(toml.Record):
    """The file: questions whose answers differ, and the filler of a long prefix."""

    answer_tokens: int = Field(gt=0)
    filler: str = Field(min_length=1)
    questions: tuple[str, ...] = Field(min_length=2)


def load(path: Path = FILE) -> Questions:
    """Read the file; raises `UserError` for a fault in it."""
    return toml.load(path, Questions)
