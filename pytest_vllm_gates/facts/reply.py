"""A reply the server was made to write, to see what its parsers make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.facts.answer import Answer


class Hostile(toml.Record):
    """A text that is awkward inside a tool call's argument."""

    name: str
    text: str
    times: int = 1
    """How often the text is repeated: a long one in a short file."""


class HostileTexts(toml.Record):
    """The file."""

    texts: tuple[Hostile, ...]


class TypedCall(toml.Record):
    """Arguments of declared types; both are JSON, which has a null that TOML lacks."""

    name: str
    parameters: str
    """The JSON Schema that the tool declares."""
    arguments: str


class TypedCalls(toml.Record):
    """The file."""

    calls: tuple[TypedCall, ...]


@dataclass(frozen=True)
class Reply:
    """What came of one forced reply: a call of one tool."""

    name: str
    arguments: Mapping[str, Any]
    exact: bool
    """Whether the family's format can carry the arguments unchanged."""
    request: Mapping[str, Any]
    whole: Answer
    streamed: Answer
    widened: Answer
