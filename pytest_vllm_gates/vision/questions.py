"""The questions of `vision.toml`, and requests with them about pictures."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.vision.types import COLOURS, PLACES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATH = data.FOLDER / "vision.toml"
DIGIT_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "place": PLACES,
    "digit": tuple(map(str, range(10))),
    "count": tuple(map(str, range(10))),
    "which": PLACES[:2],
}
"""The words of which an answer has some, by the kind of question; colours for the others."""


class Tool(toml.Record):
    """The tool whose argument is the content of the picture."""

    name: str
    description: str


class MiniatureAnswers(toml.Record):
    """The miniatures' answer without a picture."""

    none: str


class PictureQuestions(toml.Record):
    """The file."""

    questions: dict[str, str]
    tool: Tool
    miniature: MiniatureAnswers


@cache
def load() -> PictureQuestions:
    """Return the file's content."""
    return toml.load(PATH, PictureQuestions)


def question(kind: str) -> str:
    """Return the question of a kind."""
    return load().questions[kind]


def options(kind: str) -> tuple[str, ...]:
    """Return the words that an answer to a question may contain."""
    return OPTIONS.get(kind, tuple(COLOURS))


def image(url: str) -> dict[str, Any]:
    """Return the part of a message that contains a picture."""
    return {"type": "image_url", "image_url": {"url": url}}


def user(urls: Sequence[str], text: str) -> dict[str, Any]:
    """Return a user's message with pictures before its text."""
    return {"role": "user", "content": [*map(image, urls), {"type": "text", "text": text}]}


def tool() -> dict[str, Any]:
    """Return the tool's declaration."""
    known = load().tool
    parameters = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": list(COLOURS)}},
        "required": ["colour"],
    }
    function = {"name": known.name, "description": known.description, "parameters": parameters}
    return {"type": "function", "function": function}
