"""What the long-context gate reads to a server, from `long_context.toml`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = data.FOLDER / "long_context.toml"


class Needle(toml.Record):
    """A sentence hidden in a long text, and the question that it answers."""

    says: str
    asks: str
    depths: tuple[float, ...] = Field(min_length=1)
    """Where it is hidden, 0 at the beginning of the text and 1 at its end."""
    short_tokens: int
    """A text in which anybody finds it who can at all."""
    answer_tokens: int


class LongContext(toml.Record):
    """The text and how it is asked for."""

    output_tokens: int
    beyond: int
    crowd: int
    scored: int
    paragraphs: tuple[str, ...] = Field(min_length=1)
    needle: Needle

    def text_of(self, count: int) -> Iterator[str]:
        """Yield the text's first paragraphs, numbered, each with its line's end."""
        paragraphs = itertools.islice(itertools.cycle(self.paragraphs), count)
        for number, paragraph in enumerate(paragraphs, start=1):
            yield f"{number}. {paragraph}\n"


def load() -> LongContext:
    """Read the shipped text."""
    return toml.load(FILE, LongContext)
