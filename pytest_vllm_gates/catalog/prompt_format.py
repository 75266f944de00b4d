"""A family's prompt format: its markers, and what it leaves out, adds and refuses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_vllm_gates.catalog import toml

Kind = Literal[
    "system text", "user text", "answer", "reasoning", "earlier reasoning", "call",
    "argument's name", "argument", "result", "name", "tool", "tool's description", "parameter",
    "required parameter", "parameter's description", "allowed value", "constraint",
]  # fmt: skip
"""The kinds of text that a client sends, as marked by `prompts/sent.py`."""


class Drop(toml.Record):
    """A part of requests that the prompt format leaves out."""

    what: Kind
    reference: str
    may_stay: bool = False
    """Whether some of the family's templates keep it."""


class DecidedRefusal(toml.Record):
    """A conversation or a shape of messages that the template refuses, reviewed as correct."""

    name: str
    """The name of a conversation, or of a shape (`data/shapes.toml`)."""
    reason: str
    reference: str


class Prompt(toml.Record):
    """The markers of the prompt format, in the template and in the tokenizer."""

    system: str | None = None
    """Absent if system text does not have its own marker."""
    user: str
    assistant: str
    end_of_turn: str | None = None
    """Absent if a turn ends with the next one's marker."""
    stop_tokens: tuple[str, ...] = Field(min_length=1)
    special_tokens: tuple[str, ...] = ()
    encoder: str | None = None
    """vLLM's module that writes prompts if the checkpoint has no template."""
    prefix_stable: bool = False
    """Whether an added turn keeps the earlier turns' tokens, which prefix caching requires."""
    drops: tuple[Drop, ...] = ()
    """Parts that are sent and not written."""
    adds: tuple[str, ...] = ()
    """Texts that are written though nobody sends them, in prompts without tools.

    `YYYY-MM-DD` matches any date.
    """
    refuses: tuple[DecidedRefusal, ...] = ()
    image: str | None = None
    """The placeholder of an image; absent if the format has no place for images."""
    names: bool = False
    """Whether the `name` of messages is written; most formats have no place for it."""

    @property
    def words(self) -> dict[str, str]:
        """The markers by the names that conversations quote them with."""
        return {
            "system": self.system or "",
            "user": self.user,
            "assistant": self.assistant,
            "end_of_turn": self.end_of_turn or "",
            "stop": self.stop_tokens[0],
        }
