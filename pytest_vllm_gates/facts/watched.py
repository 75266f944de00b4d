"""Which evidence is held side by side although no check failed, read from `drift.toml`."""

from __future__ import annotations

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

SHIPPED = data.FOLDER / "drift.toml"


class Watched(toml.Record):
    """One piece of a check's evidence, by the key it is written under."""

    gate: str
    test: str
    where: str
    """What a person calls it."""
    key: str | None = None
    """None for all of the check's evidence."""


class _File(toml.Record):
    watched: tuple[Watched, ...]


def load() -> tuple[Watched, ...]:
    """Return all that is watched."""
    return toml.load(SHIPPED, _File).watched
