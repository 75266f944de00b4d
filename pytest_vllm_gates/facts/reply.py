"""A reply the server was made to write, to see what its parsers make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.facts import strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.facts.answer import Answer


class Hostile(strict.Record):
    """A text that is awkward inside a tool call's argument."""

    name: str
    text: str
    times: int = 1
    """How often the text is repeated: a long one in a short file."""


class HostileTexts(strict.Record):
    """The file."""

    texts: tuple[Hostile, ...]


@dataclass(frozen=True)
class Reply:
    """What came of one forced reply: a call of one tool with one argument, `text`."""

    name: str
    text: str
    exact: bool
    """Whether the family's format can carry the text unchanged."""
    request: Mapping[str, Any]
    whole: Answer
    streamed: Answer
    widened: Answer

    @property
    def traits(self) -> dict[str, str]:
        """What known defects are told by."""
        return {"text": self.name}
