"""What is expected of an answer, in words a person types and a bundle keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "expected/expectations.txt"
"""Where a bundle keeps them, one a line."""
FORMS = (
    "status is N", "finish_reason is WORD", "content has TEXT", "content lacks TEXT",
    "content is JSON", "reasoning has TEXT", "reasoning lacks TEXT", "calls NAME", "calls nothing",
    "whole", "sense", "within SECONDS s",
)  # fmt: skip
PATTERN = re.compile(
    r"(?P<field>status|finish_reason) is (?P<is>\w+)"
    r"|(?P<text>content|reasoning) (?P<how>has|lacks) (?P<part>.+)"
    r"|(?P<json>content is JSON)"
    r"|calls (?P<calls>[\w.-]{1,200})"
    r"|(?P<word>whole|sense)"
    r"|within (?P<seconds>\d+(?:\.\d+)?) ?s",
    re.DOTALL,
)
DEFAULT = ("status is 200", "whole", "sense")
WITHOUT_A_CHAT = ("status is 200",)


@dataclass(frozen=True)
class Expectation:
    """One expectation. `kind` is how it is judged, `name` of what and `value` against what."""

    kind: str
    name: str
    value: str
    said: str


def parse(text: str) -> Expectation:
    """Read an expectation; raises `UserError` that lists what there is."""
    said = text.strip()
    match = PATTERN.fullmatch(said)
    if match is None or (match["field"] == "status" and not match["is"].isdecimal()):
        raise UserError(f"{text!r} is no expectation; there are: {'; '.join(FORMS)}")
    if match["field"]:
        return Expectation("is", match["field"], match["is"], said)
    if match["text"]:
        return Expectation(match["how"], match["text"], match["part"], said)
    if match["calls"]:
        return Expectation("calls", "", match["calls"], said)
    if match["seconds"]:
        return Expectation("within", "", match["seconds"], said)
    return Expectation(match["word"] or "json", "content", "", said)


def parse_all(texts: Iterable[str]) -> tuple[Expectation, ...]:
    """Read expectations, empty lines aside."""
    return tuple(parse(one) for one in texts if one.strip())
