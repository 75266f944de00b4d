"""Marks every text of a chat request with a unique word, to be found again in the prompt.

`mark` takes any request and returns it with its `Piece`s: the client's texts, one by one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSTEM, USER, ANSWER = "system text", "user text", "answer"
REASONING, EARLIER_REASONING = "reasoning", "earlier reasoning"
CALL, ARGUMENT_NAME, ARGUMENT = "call", "argument's name", "argument"
RESULT, NAME = "result", "name"
TOOL, TOOL_DESCRIPTION = "tool", "tool's description"
PARAMETER, REQUIRED, DESCRIPTION = "parameter", "required parameter", "parameter's description"
VALUE, CONSTRAINT = "allowed value", "constraint"

DECLARED = (TOOL, TOOL_DESCRIPTION, PARAMETER, REQUIRED, DESCRIPTION, VALUE, CONSTRAINT)
"""Kinds that belong to the declarations of tools, before or beside the turns."""
SHARED = (TOOL, PARAMETER, REQUIRED, CALL, ARGUMENT_NAME)
"""Names, which a prompt may contain several times."""
OF_MESSAGES = (SYSTEM, USER, ANSWER, RESULT, REASONING, EARLIER_REASONING)
"""Texts of turns, which a prompt contains as they are, without escapes."""
OF_ROLES = {
    "system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ANSWER, "tool": RESULT,
}  # fmt: skip
LETTERS = "bcdfghjklmnpqrstvwxz"
WORD_LETTERS = 8


Place = tuple[int | None, str | None]
"""The number and the role of a message."""
NOWHERE: Place = (None, None)


@dataclass(frozen=True)
class Piece:
    """One text of a client, and the word that marks it."""

    kind: str
    title: str
    """Its name in messages: `the description of the tool get_weather`."""
    word: str
    message: int | None = None
    """The index of its message; None for declarations."""
    role: str | None = None
    text: str = ""
    """The whole text as it is sent, with its word; empty for names and numbers."""
    tool: str = ""
    """The declared tool that it belongs to."""


@dataclass
class _Marker:
    """Hands out words; a name has the same one wherever it is written."""

    pieces: list[Piece] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    count: int = 0
    tool: str = ""

    def add(self, piece: Piece) -> None:
        """Keep a piece, with the tool that is currently declared."""
        self.pieces.append(replace(piece, tool=self.tool))

    def word(self) -> str:
        """Return a word that no text contains and that no escaping changes."""
        self.count += 1
        digest = hashlib.sha256(str(self.count).encode()).digest()
        return "q" + "".join(LETTERS[byte % len(LETTERS)] for byte in digest[: WORD_LETTERS - 1])

    def number(self) -> int:
        """Return a number that is as distinctive as a word."""
        self.count += 1
        digest = hashlib.sha256(str(self.count).encode()).digest()
        return 7_000_000 + int.from_bytes(digest[:4], "big") % 1_000_000

    def text(self, text: str, kind: str, title: str, place: Place = NOWHERE) -> str:
        """Return a text with a word after it; one without a letter stays as it is."""
        if not text.strip():
            return text
        word = self.word()
        marked = f"{text} {word}"
        self.add(Piece(kind, title, word, *place, marked))
        return marked

    def name(self, name: str, kind: str, title: str, place: Place = NOWHERE) -> str:
        """Return a name with its word after it."""
        key = ("function" if kind in (TOOL, CALL, NAME) else "parameter", name)
        word = self.names[key] = self.names.get(key) or self.word()
        self.add(Piece(kind, title, word, *place))
        return f"{name}_{word}"


def mark(body: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Piece, ...]]:
    """Return a chat request whose texts are marked, and its pieces in the order they were sent.

    Declarations come first. Numbers of a schema and of arguments are replaced by distinctive ones.
    """
    marker = _Marker()
    marked = dict(body)
    if body.get("tools"):
        marked["tools"] = [_tool(tool, marker) for tool in body["tools"]]
    messages = body["messages"]
    asked = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    marked["messages"] = [
        _message(message, number, marker, earlier=number < asked)
        for number, message in enumerate(messages)
    ]
    return marked, tuple(marker.pieces)


def _message(
    message: Mapping[str, Any], number: int, marker: _Marker, *, earlier: bool
) -> dict[str, Any]:
    role = message["role"]
    place: Place = (number, role)
    whose = f"of message {number + 1} ({role})"
    marked = dict(message)
    for key in ("reasoning", "reasoning_content"):
        if isinstance(message.get(key), str):
            kind = EARLIER_REASONING if earlier else REASONING
            marked[key] = marker.text(message[key], kind, f"the reasoning {whose}", place)
    kind = OF_ROLES.get(role, USER)
    content = message.get("content")
    if isinstance(content, str):
        marked["content"] = marker.text(content, kind, f"the text {whose}", place)
    elif isinstance(content, list):
        marked["content"] = [
            {**part, "text": marker.text(part["text"], kind, f"a part {whose}", place)}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    if message.get("tool_calls"):
        marked["tool_calls"] = [_call(call, marker, place, whose) for call in message["tool_calls"]]
    if isinstance(message.get("name"), str):
        marked["name"] = marker.name(message["name"], NAME, f"the name {whose}", place)
    return marked


def _call(call: Mapping[str, Any], marker: _Marker, place: Place, whose: str) -> dict[str, Any]:
    function = dict(call["function"])
    name = function["name"]
    function["name"] = marker.name(name, CALL, f"the call of {name} {whose}", place)
    arguments = function.get("arguments")
    as_text = isinstance(arguments, str)
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return {**call, "function": function}
    if isinstance(arguments, dict):
        said = f"of the call of {name} {whose}"
        arguments = _argument(arguments, marker, place, f"arguments {said}", depth=0)
        function["arguments"] = json.dumps(arguments, ensure_ascii=False) if as_text else arguments
    return {**call, "function": function}


def _argument(value: Any, marker: _Marker, place: Place, title: str, *, depth: int) -> Any:
    if isinstance(value, dict):
        return {
            marker.name(key, ARGUMENT_NAME, f"the name {key!r} in the {title}", place): _argument(
                inner, marker, place, title, depth=depth + 1
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_argument(inner, marker, place, title, depth=depth + 1) for inner in value]
    if isinstance(value, str):
        return marker.text(value, ARGUMENT, f"the value {value!r} in the {title}", place)
    if isinstance(value, int) and not isinstance(value, bool):
        number = marker.number()
        marker.add(Piece(ARGUMENT, f"the number {value} in the {title}", str(number), *place))
        return number
    return value


def _tool(tool: Mapping[str, Any], marker: _Marker) -> dict[str, Any]:
    function = dict(tool["function"])
    name = marker.tool = function["name"]
    whose = f"of the tool {name}"
    function["name"] = marker.name(name, TOOL, f"the name {whose}")
    if isinstance(function.get("description"), str):
        function["description"] = marker.text(
            function["description"], TOOL_DESCRIPTION, f"the description {whose}"
        )
    if isinstance(function.get("parameters"), dict):
        function["parameters"] = _schema(function["parameters"], marker, whose)
    marker.tool = ""
    return {**tool, "function": function}


def _schema(schema: Mapping[str, Any], marker: _Marker, whose: str) -> dict[str, Any]:
    """Return a JSON Schema whose names, descriptions, values and numbers are marked."""
    marked: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            marked[key] = {
                (
                    marker.name(name, PARAMETER, f"the parameter {name!r} {whose}")
                    if key == "properties"
                    else name
                ): _schema(inner, marker, f"of {name!r} {whose}")
                if isinstance(inner, dict)
                else inner
                for name, inner in value.items()
            }
        elif key == "required" and isinstance(value, list):
            marked[key] = [
                marker.name(name, REQUIRED, f"{name!r} among those required {whose}")
                for name in value
            ]
        elif key == "enum" and isinstance(value, list):
            marked[key] = _values(value, marker, whose)
        elif key in ("description", "title") and isinstance(value, str):
            marked[key] = marker.text(value, DESCRIPTION, f"the {key} {whose}")
        elif isinstance(value, dict):
            marked[key] = _schema(value, marker, whose)
        elif isinstance(value, list):
            marked[key] = [
                _schema(inner, marker, whose) if isinstance(inner, dict) else inner
                for inner in value
            ]
        elif isinstance(value, int) and not isinstance(value, bool):
            marked[key] = number = marker.number()
            marker.add(Piece(CONSTRAINT, f"{key} = {value} {whose}", str(number)))
        else:
            marked[key] = value
    return marked


def _values(values: Sequence[Any], marker: _Marker, whose: str) -> list[Any]:
    return [
        marker.text(value, VALUE, f"the allowed value {value!r} {whose}")
        if isinstance(value, str)
        else value
        for value in values
    ]
