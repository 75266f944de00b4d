"""Split pages, docstrings, comments and messages into sentences that a person reads."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[A-Z`\"'(*\d\[-])")
"""A full stop and what follows it: the next sentence begins with a capital, a digit or code."""
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs|al|No)\.$")
CODE = re.compile(r"`+[^`]*`+")
WORD = re.compile(r"[A-Za-z][a-z']+")
DIRECTIVE = re.compile(r"^#\s*(?:noqa|type:|pragma|ruff:|mypy:|!|fmt:|TODO)")
MESSAGE_WORDS = 4
"""Strings of fewer words are labels or values, not sentences."""
DATA = re.compile(r"\\[bdswx(]|\(\?|[{}<>|]{2}|^\s*[\[{<]")
"""What a pattern, JSON or markup has and a message does not."""

COMMENT = re.compile(r"(?:^|\s)(#\s.*)$")
VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"')
SENT_TO_MODELS = frozenset({"conversations", "miniatures", "prompts", "corpus"})
"""Folders whose data files have texts for models, not for people."""


class Sentence(NamedTuple):
    line: int
    """The line of the file, counted from 1."""
    text: str


def split(text: str, line: int = 1) -> Iterator[Sentence]:
    """Split text into sentences; code stays, and words are what makes a sentence."""
    begun = ""
    for part in END.split(" ".join(text.split())):
        begun = f"{begun} {part}" if begun else part
        if ABBREVIATION.search(begun) or begun.count("`") % 2:
            continue
        if len(WORD.findall(CODE.sub("", begun))) > 1:
            yield Sentence(line, begun)
        begun = ""


def of_markdown(path: Path) -> Iterator[Sentence]:
    """The sentences of a page: paragraphs, list items and table cells; no headings, no code."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    line = 1
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.map:
            line = token.map[0] + 1
        if token.type != "inline" or (before and before.type == "heading_open"):
            continue
        for part in re.split(r"\n\n", _plain(token.children or [])):
            yield from split(part, line)


def _plain(children: list) -> str:  # type: ignore[type-arg]
    """The words of a paragraph; code stays in backquotes, links and pictures lose addresses."""
    kept = []
    for child in children:
        if child.type == "text":
            kept.append(child.content)
        elif child.type == "code_inline":
            kept.append(f"`{child.content}`")
        elif child.type in ("softbreak", "hardbreak"):
            kept.append(" ")
    return "".join(kept)


def of_python(path: Path) -> Iterator[Sentence]:
    """The sentences of docstrings, comments and messages."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        else:
            continue
        if len(WORD.findall(text)) >= MESSAGE_WORDS and " " in text and not DATA.search(text):
            for paragraph in re.split(r"\n\s*\n", text):
                yield from split(paragraph, node.lineno)
    yield from _comments(
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    )


def of_toml(path: Path) -> Iterator[Sentence]:
    """The sentences of a data file: its comments, and texts that are not sent to a model."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    yield from _comments(
        (number, found[1])
        for number, line in enumerate(lines, 1)
        if (found := COMMENT.search(line))
    )
    if SENT_TO_MODELS.isdisjoint(path.parts):
        for number, line in enumerate(lines, 1):
            for text in VALUE.findall(COMMENT.sub("", line)):
                if len(WORD.findall(text)) > MESSAGE_WORDS and not DATA.search(text):
                    yield from split(text, number)


def _comments(comments: Iterator[tuple[int, str]]) -> Iterator[Sentence]:
    """Join comments of lines in a row, and split them into sentences."""
    first = last = -1
    text = ""
    for number, comment in comments:
        if DIRECTIVE.match(comment):
            continue
        if number != last + 1:
            yield from split(text, first)
            first, text = number, ""
        text, last = f"{text} {comment.lstrip('#').strip()}", number
    yield from split(text, first)


READERS = {".md": of_markdown, ".py": of_python, ".toml": of_toml}


def of(path: Path) -> list[Sentence]:
    """All sentences of a file, by its suffix."""
    return [*READERS[path.suffix](path)]
