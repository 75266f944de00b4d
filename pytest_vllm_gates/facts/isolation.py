"""What the isolation gate asks, read from `isolation.toml`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from pytest_vllm_gates.facts import strict

FILE = Path(__file__).parent.parent / "isolation.toml"


class Questions(strict.Record):
    """The file: questions whose answers differ, and what a long prefix is made of."""

    answer_tokens: int = Field(gt=0)
    filler: str = Field(min_length=1)
    questions: tuple[str, ...] = Field(min_length=2)


def load(path: Path = FILE) -> Questions:
    """Read the file; raises `UserError` for a fault in it."""
    return strict.load(path, Questions)
