"""How a family writes tool calls: the form in its file, written out, and found again in text.

A form has places (`NAME`, `ARGUMENTS`, or `KEY` and `VALUE`). It is between two tags, or it is a
value in brackets: JSON (`{"name": "NAME", "parameters": ARGUMENTS}`), a list of JSON after a word
(`functools[…]`), or Python's calls in a list (`[NAME(KEY=VALUE)]`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.family_parts import Tools

PLACES = re.compile("NAME|KEY|VALUE|ARGUMENTS")
BETWEEN_TAGS = re.compile(r"(?<=>)\s*(?=<)")
FIRST_TAG, LAST_TAG = re.compile(r"<[^>]*>"), re.compile(r"<[^<]*>$")
WORDS = re.compile(r"[^\W\d_]{2,}")
NAME = r"[\w.-]+"
"""A tool's name."""
PYTHON = "(KEY=VALUE)"
OPENING, CLOSING = "[{(", "]})"


@dataclass(frozen=True)
class WrittenCall:
    """Calls in a text; `block` is their text, and `parts` are the texts of single calls.

    If only tags separate the calls of a form, there is one part, the block.
    """

    block: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class CallForm:
    """The form of a family's calls."""

    tools: Tools

    @property
    def call(self) -> str:
        """The form, without blanks around it."""
        return self.tools.call.strip()

    @cached_property
    def opening(self) -> str:
        """The beginning of every call: a tag, a marker, or the text before the first bracket."""
        if tag := FIRST_TAG.match(self.call):
            return tag[0]
        markers = [mark for mark in self.tools.markers if mark and self.call.startswith(mark)]
        return max(markers, key=len, default=self.call.partition("NAME")[0])

    @cached_property
    def closing(self) -> str:
        """The end of every call: a tag, or the last bracket."""
        if self._in_tags and (tag := LAST_TAG.search(self.call)):
            return tag[0]
        return "}" if self.call.endswith("ARGUMENTS") else self.call[-1:]

    @cached_property
    def _in_tags(self) -> bool:
        return bool(LAST_TAG.search(self.call))

    @cached_property
    def _json_in_tags(self) -> bool:
        """Whether a call is an object between its own tags; its values may look like a call."""
        return self._in_tags and _around(self.call, "NAME").startswith(tuple(OPENING))

    @cached_property
    def _in_list(self) -> bool:
        """Whether several calls share one list."""
        return not self._in_tags and self.call.endswith("]")

    @cached_property
    def _begins(self) -> re.Pattern[str]:
        """Match a call up to its first key or argument; blanks may differ."""
        head = re.split("KEY|VALUE|ARGUMENTS", self.call)[0]
        return re.compile(r"\s*".join(_literal(part) for part in head.split()))

    def written(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return a call; None where the form has bare values between tags, as a template writes."""
        if "ARGUMENTS" in self.call:
            text = json.dumps(arguments, ensure_ascii=False)
            return self.tools.call.replace("NAME", name).replace("ARGUMENTS", text)
        if PYTHON in self.call:
            values = ", ".join(f"{key}={_in_python(value)}" for key, value in arguments.items())
            return self.tools.call.replace("NAME", name).replace(PYTHON, f"({values})")
        return None

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Return a text without its calls, and the calls; a cut one goes to the text's end."""
        spans = self._tagged(text) if self._in_tags else self._bracketed(text)
        rest, at = "", 0
        for begin, end, _ in spans:
            rest += text[at:begin]
            at = end
        found = tuple(WrittenCall(text[begin:end], parts) for begin, end, parts in spans)
        return rest + text[at:], found

    def count(self, found: tuple[WrittenCall, ...]) -> int | None:
        """Return the number of calls; None where the form does not separate them."""
        if not self._in_tags:
            return sum(len(written.parts) for written in found)
        if self._json_in_tags:
            return len(found)
        before_name = _around(self.call, "NAME")
        return sum(each.block.count(before_name) for each in found) if before_name else None

    def bare(self, found: tuple[WrittenCall, ...]) -> str:
        """Return the calls' content without the form: names, keys and values."""
        if self._in_tags and not self._json_in_tags:
            text = "".join(written.block for written in found)
            for markup in self._markup:
                text = text.replace(markup, " ")
            return text
        parts = [part for written in found for part in written.parts]
        for markup in self._markup:
            spaced = re.compile(r"\s*".join(re.escape(part) for part in markup.split()))
            # Once each, because the values of arguments may look like it.
            parts = [spaced.sub(" ", part, count=1) for part in parts]
        return " ".join(parts)

    @cached_property
    def _markup(self) -> list[str]:
        """The parts of the form that are neither name, key nor value, longest first."""
        form = self.tools.call
        if self._in_list:
            form = form[form.index("[") + 1 :]
        tags = [tag for part in PLACES.split(form) for tag in BETWEEN_TAGS.split(part)]
        tags += [tag.replace('"true"', '"false"') for tag in tags]
        words = {tag.strip() for tag in (*tags, *self.tools.markers) if WORDS.search(tag)}
        return sorted(words, key=len, reverse=True)

    def _tagged(self, text: str) -> list[tuple[int, int, tuple[str, ...]]]:
        ends = re.escape(self.closing)
        pattern = re.compile(f"{re.escape(self.opening)}(.*?)(?:{ends}|$)", re.DOTALL)
        return [(*match.span(), (match[0],)) for match in pattern.finditer(text)]

    def _bracketed(self, text: str) -> list[tuple[int, int, tuple[str, ...]]]:
        spans, at = [], 0
        while match := self._begins.search(text, at):
            first = match.start()
            if self._in_list:
                first += match[0].index("[")
            elif self.opening in self.tools.markers:
                first = match.end()  # the markers may be in brackets themselves
            at, commas = _brackets(text, first)
            cuts = [first, *commas, at - 1] if self._in_list else [match.start() - 1, at]
            parts = [text[low + 1 : high] for low, high in pairwise(cuts)]
            spans.append((match.start(), at, tuple(parts)))
        return spans


def _literal(part: str) -> str:
    """Return the expression of a part of a form: a name in the name's place."""
    return NAME.join(re.escape(piece) for piece in part.split("NAME"))


def _brackets(text: str, start: int) -> tuple[int, list[int]]:
    """Return where the first bracket at or after a place closes, and where its own commas are.

    Brackets and commas within quotes do not count. An open bracket closes at the text's end.
    """
    depth, quote, escaped = 0, "", False
    commas: list[int] = []
    for at in range(start, len(text)):
        character = text[at]
        if quote:
            if not escaped and character == quote:
                quote = ""
            escaped = character == "\\" and not escaped
        elif character in "\"'":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
            if depth <= 0:
                return at + 1, commas
        elif character == "," and depth == 1:
            commas.append(at)
    return len(text), commas


def _in_python(value: Any) -> str:
    """Return a JSON value as Python writes it, texts in double quotes."""
    if isinstance(value, dict):
        pairs = (f"{_in_python(key)}: {_in_python(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_python, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _around(call: str, place: str) -> str:
    """Return the text right before a place of the call's form, from the last marker on."""
    before = call.partition(place)[0].rstrip()
    if before.endswith(">"):
        return before[before.rfind("<") :]
    return before[max(before.rfind("<"), before.rfind(">") + 1, before.rfind("\n") + 1) :]
