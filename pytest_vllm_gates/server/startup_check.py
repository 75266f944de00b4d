"""How a server was started, by what it tells of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = data.FOLDER / "startup.toml"
GIB = 2**30


class Pattern(toml.Record):
    """One thing a log may tell: regular expressions whose one group is its value."""

    name: str
    patterns: tuple[str, ...] = Field(min_length=1)
    every: bool = False
    """Whether several finds are one fact together."""

    @field_validator("patterns")
    @classmethod
    def _one_group(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if re.compile(pattern).groups != 1:
                raise ValueError(f"{pattern!r} has not one group, the value")
        return patterns


class Patterns(toml.Record):
    """The file."""

    facts: tuple[Pattern, ...]
    figures: tuple[Pattern, ...]


@dataclass(frozen=True)
class Startup:
    """What the log and the metrics of one boot tell; what they do not tell is absent."""

    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Tokens, GiB and requests, as each one's name says."""
    cache: Mapping[str, str] = field(default_factory=dict)
    """The labels of `vllm:cache_config_info`."""

    def concurrency_at(self, tokens: int) -> float | None:
        """Return how many requests of so many tokens have room in the KV cache at once.

        vLLM tells it for requests of the longest length; shorter ones are taken to need less in
        proportion, which for sliding windows and states is too good by a little.
        """
        told, longest = (
            self.figures.get(name) for name in ("kv_concurrency", "kv_concurrency_tokens")
        )
        return told * longest / tokens if told and longest else None

    @property
    def kv_bytes(self) -> int | None:
        """The memory set aside for the KV cache, as far as the log's rounding tells it."""
        gib = self.figures.get("kv_gib")
        return round(gib * GIB) if gib is not None else None

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**self.facts, **self.figures, "cache_config": dict(self.cache)}


def patterns() -> Patterns:
    """Read the shipped patterns."""
    return toml.load(FILE, Patterns)
