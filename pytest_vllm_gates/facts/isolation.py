"""What the isolation gate asks, read from `isolation.toml`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from pathlib import Path

FILE = data.FOLDER / "isolation.toml"


class Questions(toml.Record):
    """The file: questions whose answers differ, and what a long prefix is made of."""

    answer_tokens: int = Field(gt=0)
    filler: str = Field(min_length=1)
    questions: tuple[str, ...] = Field(min_length=2)


def load(path: Path = FILE) -> Questions:
    """Read the file; raises `UserError` for a fault in it."""
    return toml.load(path, Questions)
