"""Shrinks an incident to the fewest requests, turns, tools and options that still show the fault.

`shrink` is delta debugging (Zeller, Hildebrandt 2002).
"""

from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import expectation, write as incidents_write
from pytest_vllm_gates.incidents.parts import body_of
from pytest_vllm_gates.incidents.read import FILES_BYTES
from pytest_vllm_gates.incidents.types import CAPTURED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.incidents.read import IncidentFolder
    from pytest_vllm_gates.incidents.types import CellSends

# Fields that are never left out: they make a body a request, or define how it is answered.
FIXED = {
    "model", "prompt", "input", "stream", "stream_options", "stream_interval", "messages", "tools",
    "max_tokens", "max_completion_tokens",
}  # fmt: skip

# The fields of a conversation that may be left out, like the options of a request.
CONVERSATION_OPTIONS = ("effort", "repeat_last", "continue_last")
KINDS = ("turn", "tool", "option")
NO_CELL = "the cell "
"""The beginning of the note on a cell that was too large to be stored."""
GOLDEN = " is not what was recorded in "
"""A part of the first line that reports a difference to a golden."""


@dataclass(frozen=True)
class RemovablePart:
    """A part that may be left out. `of` is the request, or the cell, that has it."""

    kind: str
    """`request`, `turn`, `tool` or `option`."""
    of: str
    what: str | int = ""

    def __str__(self) -> str:
        value = self.what + 1 if isinstance(self.what, int) else self.what
        return f"{self.kind} {value or self.of}".rstrip()


class Shrinker:
    """Takes parts out of an incident, and writes the rest as a new incident."""

    def __init__(self, incident_folder: IncidentFolder) -> None:
        """Raises `UserError`, with the reason, for an incident that cannot be shrunk."""
        self._incident_folder = incident_folder
        self._incident = incident_folder.incident
        self._sends = {
            send.name: incident_folder.sent(send) for send in incident_folder.incident.sends
        }
        self._groups = dict(self._grouped())
        # The tools that are expected to be called: no server can call one that was left out.
        self._called = {
            expected.value
            for expected in expectation.of(incident_folder)
            if expected.kind == "calls"
        }
        if why := self._why_not():
            raise UserError(f"{incident_folder.folder} cannot be shrunk: {why}")

    def _why_not(self) -> str:
        """Return why no smaller incident can be tried; '' if one can."""
        incident, test = self._incident, self._incident.test
        if incidents_write.OTHERWISE in incident.cut:
            return incidents_write.OTHERWISE
        if not self._groups and not incident.conversation:
            return self._why_nothing_is_asked()
        if not self._groups and GOLDEN in incident.says.partition("\n")[0]:
            return f"{test} compares with a golden, and only the whole conversation has one"
        if next(self.parts(), None) is None:
            return "it is one request with one message, without tools and options"
        return ""

    def _why_nothing_is_asked(self) -> str:
        incident, test = self._incident, self._incident.test
        if any(cut.startswith(NO_CELL) for cut in incident.cut):
            return "the judged requests were too large to be stored"
        if self._sends:
            return (
                f"{test} makes its own requests and does not use the ones in the incident: there "
                "is nothing to leave out"
            )
        return "it has no request" + ("" if incident.gate == CAPTURED else f": {test} sent none")

    def possible(self, left_out: Sequence[RemovablePart]) -> bool:
        """Return whether each request, or the conversation, still has a message."""
        conversation = self._incident.conversation
        if self._groups or not conversation:
            return all(self._has_a_message(group, left_out) for group in self._groups)
        remaining = _without_parts(conversation, left_out, CONVERSATION_OPTIONS)
        return bool(remaining.get("messages"))

    def _has_a_message(self, group: str, left_out: Sequence[RemovablePart]) -> bool:
        count = len(_list_of(body_of(self._sends[group]), "messages"))
        gone = {part.what for part in left_out if (part.kind, part.of) == ("turn", group)}
        return not gone or len(gone) < count

    def parts(self) -> Iterator[tuple[str, list[RemovablePart]]]:
        """Yield the parts that may be left out, kind by kind: the largest kind first."""
        groups = list(self._groups)
        if len(groups) > 1:
            yield "request", [RemovablePart("request", group) for group in groups]
        for kind in KINDS:
            parts = [part for group in groups for part in self._parts_of(kind, group)]
            parts += self._conversation_parts(kind)
            if parts:
                yield kind, parts

    def write(self, parent: Path, name: str, left_out: Sequence[RemovablePart]) -> Path:
        """Write the incident without some of its parts; return its folder."""
        gone = {part.of for part in left_out if part.kind == "request"}
        groups = {group: names for group, names in self._groups.items() if group not in gone}
        kept_names = {name for names in groups.values() for name in names} or {*self._sends}
        sends = [
            self._without(send, [part for part in left_out if send.name in groups.get(part.of, ())])
            for send in self._sends.values()
            if send.name in kept_names
        ]
        files = {
            file: bounded_read.data(self._incident_folder.folder / file, FILES_BYTES)
            for file in self._incident.files
            if not file.startswith(("requests/", "responses/"))
        }
        walk, conversation = self._incident.walk, self._incident.conversation
        changes: dict[str, Any] = {"command": self._command(parent)}
        if walk:
            cells = tuple(cell for cell in walk.cells if cell.whole in kept_names)
            changes["walk"] = walk.model_copy(update={"cells": cells})
        if conversation and not self._groups:
            changes["conversation"] = _without_parts(conversation, left_out, CONVERSATION_OPTIONS)
        incident = self._incident.model_copy(update=changes)
        return incidents_write.write(parent, name, incident, sends, files)

    def _command(self, parent: Path) -> str:
        """Return the command that replays the smaller incident, with the old command's options."""
        words = shlex.split(self._incident.command)[3:]
        # A path with a space was once written without quotes.
        more = itertools.dropwhile(
            lambda word: not word.startswith("--") and ".py" not in word, words
        )
        parent, captured = parent.absolute(), self._incident.gate == CAPTURED
        place = incidents_write.place(parent, parent if captured else projects.find(parent))
        return " ".join([f"pytest --repro {place}", *map(shlex.quote, more)])

    def _grouped(self) -> Iterator[tuple[str, list[str]]]:
        """Yield groups of requests: all requests of one cell, or each captured request alone."""
        if self._incident.walk:
            cells = self._incident.walk.cells
            compared = {cell_sends.unstopped for cell_sends in cells if cell_sends.unstopped}
            for cell in cells:
                # A cell that another cell is compared with belongs to that cell's group.
                if cell.whole not in compared:
                    yield cell.whole, [*_names(cell), *_names_of(cell.unstopped, cells)]
        elif self._incident.gate == CAPTURED:
            for name in self._sends:
                yield name, [name]

    def _parts_of(self, kind: str, group: str) -> Iterator[RemovablePart]:
        body = body_of(self._sends[group])
        if kind == "turn":
            count = len(_list_of(body, "messages"))
            yield from (RemovablePart("turn", group, at) for at in range(count) if count > 1)
        elif kind == "tool":
            yield from (
                RemovablePart("tool", group, at)
                for at, tool in enumerate(_list_of(body, "tools"))
                if _name_of(tool) not in self._called
            )
        else:
            yield from (RemovablePart("option", group, key) for key in body if key not in FIXED)

    def _conversation_parts(self, kind: str) -> Iterator[RemovablePart]:
        conversation = self._incident.conversation
        if not conversation or self._groups:
            return
        if kind == "option":
            yield from (
                RemovablePart("option", "", key)
                for key in CONVERSATION_OPTIONS
                if conversation.get(key)
            )
        else:
            members = conversation.get({"turn": "messages", "tool": "tools"}[kind]) or ()
            if kind == "tool" or len(members) > 1:
                yield from (RemovablePart(kind, "", at) for at in range(len(members)))

    def _without(self, sent: Sent, left_out: Sequence[RemovablePart]) -> Sent:
        """Return a request without parts of its body, and without the answer to the whole body."""
        changed = [part for part in left_out if part.kind != "request"]
        if not changed:
            return sent
        body = _without_parts(body_of(sent), changed)
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return replace(sent, body=data, status=None, pieces=(), response_headers={}, error="")


def _without_parts(
    body: dict[str, Any], left_out: Sequence[RemovablePart], options: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a request's body, or a conversation (whose `options` have defaults), without parts."""
    gone = {kind: {part.what for part in left_out if part.kind == kind} for kind in KINDS}
    remaining = {key: value for key, value in body.items() if key not in gone["option"]}
    for kind, key in (("turn", "messages"), ("tool", "tools")):
        if gone[kind]:
            remaining[key] = [
                value for at, value in enumerate(remaining[key]) if at not in gone[kind]
            ]
    if "tools" in remaining and not remaining["tools"] and not options:
        remaining = {
            key: value for key, value in remaining.items() if key not in ("tools", "tool_choice")
        }
    return remaining


def _list_of(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    return value if isinstance(value, list) else []


def _name_of(tool: Any) -> str:
    """Return the name of a tool in a chat or Responses request."""
    table = tool if isinstance(tool, dict) else {}
    function = table.get("function")
    return str((function if isinstance(function, dict) else table).get("name") or "")


def _names(cell_sends: CellSends) -> list[str]:
    return [name for name in (cell_sends.whole, cell_sends.streamed, cell_sends.widened) if name]


def _names_of(whole: str | None, cells: Sequence[CellSends]) -> list[str]:
    return next((_names(cell) for cell in cells if cell.whole == whole), [])


T = TypeVar("T")


def shrink(parts: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """Return parts, in their order, that still show the fault; each single one is needed for it.

    `shows` is called once for each choice, and never for all parts: they are known to show it. If
    its answers vary by chance, the returned parts have shown the fault at least once.
    """
    candidates = tuple(parts)
    answers_by_choice: dict[tuple[int, ...], bool] = {}
    places = tuple(range(len(candidates)))

    def answers(choice: tuple[int, ...]) -> bool:
        if choice not in answers_by_choice:
            answers_by_choice[choice] = shows([candidates[at] for at in choice])
        return answers_by_choice[choice]

    pieces = 1
    while places:
        smaller = next(
            (choice for choice in _without_a_piece(places, pieces) if answers(choice)), None
        )
        if smaller is not None:
            pieces = max(1, pieces - 1) if len(smaller) > 1 else 1
            places = smaller
        elif pieces >= len(places):
            break
        else:
            pieces = min(2 * pieces, len(places))
    return tuple(candidates[at] for at in places)


def _without_a_piece(places: tuple[int, ...], pieces: int) -> Iterator[tuple[int, ...]]:
    """Yield the places without each of `pieces` pieces in turn; one piece is all places."""
    size = -(-len(places) // pieces)
    for begin in range(0, len(places), size):
        yield places[:begin] + places[begin + size :]
