"""A family's prompt format: its words, and what it leaves out, adds and refuses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_vllm_gates.catalog import toml

Kind = Literal[
    "system text", "user text", "answer", "reasoning", "earlier reasoning", "call",
    "argument's name", "argument", "result", "name", "tool", "tool's description", "parameter",
    "required parameter", "parameter's description", "allowed value", "constraint",
]  # fmt: skip
"""The kinds of text that a client sends; `prompts/sent.py` marks them."""


class Drop(toml.Record):
    """Something that a client may send and the prompt format leaves out."""

    what: Kind
    reference: str
    may_stay: bool = False
    """Whether some templates of the family keep it."""


class DecidedRefusal(toml.Record):
    """A conversation or a shape of messages that the template refuses, decided to be right."""

    name: str
    """Of a conversation, or of a shape (`data/shapes.toml`)."""
    reason: str
    reference: str


class Prompt(toml.Record):
    """The words of the prompt format: what the template writes and the tokenizer knows."""

    system: str | None = None
    """Absent where system text has no marker of its own."""
    user: str
    assistant: str
    end_of_turn: str | None = None
    """Absent where a turn ends with the next one's marker."""
    stop_tokens: tuple[str, ...] = Field(min_length=1)
    special_tokens: tuple[str, ...] = ()
    encoder: str | None = None
    """The module of vLLM's that writes prompts where the checkpoint has no template."""
    prefix_stable: bool = False
    """Whether another turn keeps the earlier turns' tokens, which prefix caching lives on."""
    drops: tuple[Drop, ...] = ()
    """What is sent and not written."""
    adds: tuple[str, ...] = ()
    """Texts that are written and that nobody sends, in prompts without tools.

    `YYYY-MM-DD` stands for any date.
    """
    refuses: tuple[DecidedRefusal, ...] = ()
    image: str | None = None
    """What stands in an image's place; absent where the format has no place for images."""
    names: bool = False
    """Whether the names of messages are written; most formats have no place for them."""

    @property
    def words(self) -> dict[str, str]:
        """The markers by the names under which a conversation quotes them."""
        return {
            "system": self.system or "",
            "user": self.user,
            "assistant": self.assistant,
            "end_of_turn": self.end_of_turn or "",
            "stop": self.stop_tokens[0],
        }
