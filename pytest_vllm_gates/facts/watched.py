"""Which evidence is held side by side although no check failed, read from `drift.toml`."""

from __future__ import annotations

from pathlib import Path

from pytest_vllm_gates.facts import strict

SHIPPED = Path(__file__).parent.parent / "drift.toml"


class Watched(strict.Record):
    """One piece of a check's evidence, by the key it is written under."""

    gate: str
    test: str
    where: str
    """What a person calls it."""
    key: str | None = None
    """None for all of the check's evidence."""


class _File(strict.Record):
    watched: tuple[Watched, ...]


def load() -> tuple[Watched, ...]:
    """Return all that is watched."""
    return strict.load(SHIPPED, _File).watched
