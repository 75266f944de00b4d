"""An answer as a client sees it: the API's fields, whole or put together from a stream."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """One call as the API gives it; `arguments` is the JSON text, not yet parsed."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens as the server counts them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Answer:
    """One choice of one completion. Absent text is empty: null and "" mean the same."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Usage | None
    chunks: int | None = None
    """Events of the stream that carried anything, None for a whole answer."""
    stop_reason: str | int | None = None
    """vLLM's: the stop string or the id of the stop token that ended it, None for the model's."""
    reasoning_key: str | None = None
    """The key that carried the reasoning; vLLM has called it by two names."""
    token_ids: tuple[int, ...] = ()
    """Ids of the generated tokens, where they were asked for and the server tells them."""
    delta_tokens: tuple[int, ...] = ()
    """How many tokens each delta of a stream held, under the same condition."""

    @property
    def has_text(self) -> bool:
        """Whether there is an answer to read, calls aside."""
        return bool(self.content.strip())

    def as_evidence(self) -> dict[str, Any]:
        """Return what a client reads of the answer, as JSON."""
        unread = {"token_ids", "delta_tokens"}
        return {name: value for name, value in asdict(self).items() if name not in unread}
