"""How a server was started, and what changed since the recorded start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.server.value_pattern import ValuePattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = data.FOLDER / "startup.toml"
GIB = 2**30
PROCESSOR_FACT = "cpu_ssm_cache_dtype"
"""The fact that depends on the processor alone: another processor is not a change of the server."""


class Pattern(toml.Record):
    """One fact that a log may report: regular expressions whose one group is its value."""

    name: str
    patterns: tuple[ValuePattern, ...] = Field(min_length=1)
    every: bool = False
    """Whether several matches together are one fact."""


class Patterns(toml.Record):
    """The contents of the file."""

    facts: tuple[Pattern, ...]
    figures: tuple[Pattern, ...]
    phases: tuple[Pattern, ...]


@dataclass(frozen=True)
class Startup:
    """The facts that the log and the metrics of one boot report; unreported facts are absent."""

    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Tokens, GiB and requests, as the name shows."""
    cache: Mapping[str, str] = field(default_factory=dict)
    """The labels of `vllm:cache_config_info`."""
    decisions: Mapping[str, str] | None = None
    """vLLM's choices where no flag requested one, by topic of `fallbacks.toml`; None if unknown,
    as in a golden that an older version recorded."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase of the start, from the server's log. They are not compared: another
    boot of the same server takes another time."""

    def concurrency_at(self, tokens: int) -> float | None:
        """Return how many requests of this many tokens fit into the KV cache at once.

        vLLM reports it for requests of the longest length; shorter ones are assumed to need less in
        proportion, which is slightly optimistic for sliding windows and states.
        """
        concurrency, longest = (
            self.figures.get(name) for name in ("kv_concurrency", "kv_concurrency_tokens")
        )
        return concurrency * longest / tokens if concurrency and longest else None

    @property
    def kv_bytes(self) -> int | None:
        """The memory reserved for the KV cache, within the log's rounding."""
        gib = self.figures.get("kv_gib")
        return round(gib * GIB) if gib is not None else None

    @property
    def cpu_ssm_cache_dtype(self) -> str | None:
        """The type vLLM's CPU platform gave a recurrent state; None if it kept the model's."""
        return self.facts.get(PROCESSOR_FACT)

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        decided = {} if self.decisions is None else {"decisions": dict(self.decisions)}
        return {**self.facts, **self.figures, **decided, "cache_config": dict(self.cache)}


def patterns() -> Patterns:
    """Read the shipped patterns."""
    return toml.load(FILE, Patterns)


TITLE = "golden 1: start-up: "
END = "end of golden"
MARGIN = 0.05
"""The share by which a figure may differ: other processes' memory moves a GPU's by a little."""
ROUNDED_GIB = 0.01
"""The difference between two equal figures that were each rounded to two decimals."""
FACTS, FIGURES, DECISIONS = "facts", "figures", "decisions"
FIGURES_BY_PROCESSOR = frozenset({"kv_tokens", "kv_concurrency"})
"""Figures that depend on that fact; `memory_plan` judges them on any processor."""


def as_toml(title: str, startup: Startup) -> str:
    """Format a start as a golden, one line a fact."""
    lines = [f"{TITLE}{title}"]
    tables: dict[str, Mapping[str, Any]] = {FACTS: startup.facts, FIGURES: startup.figures}
    if startup.decisions is not None:
        tables[DECISIONS] = startup.decisions
    for name, table in tables.items():
        lines += ["", name, *(f"{key}: {table[key]}" for key in sorted(table))]
    return "\n".join([*lines, "", END, ""])


def parsed(text: str) -> Startup:
    """Read the format of `as_toml`; raises `CorruptGolden` for anything else."""
    tables: dict[str, dict[str, str]] = {FACTS: {}, FIGURES: {}}
    target = tables[FACTS]
    for line in text.splitlines()[1:-1]:
        if line in (FACTS, FIGURES, DECISIONS):
            target = tables.setdefault(line, {})
        elif line:
            key, _, value = line.partition(": ")
            target[key] = value
    try:
        figures = {key: float(value) for key, value in tables[FIGURES].items()}
    except ValueError as error:
        raise CorruptGolden(f"the start-up golden cannot be read: {error}") from error
    return Startup(tables[FACTS], figures, decisions=tables.get(DECISIONS))


def changes(recorded: Startup, current: Startup) -> Iterator[str]:
    """Yield one sentence for everything that differs now.

    vLLM keeps a recurrent state in another type on another processor. The cache figures of two such
    starts cannot be compared, and are left out. Decisions are compared if both starts have them.
    """
    same_processor = recorded.cpu_ssm_cache_dtype == current.cpu_ssm_cache_dtype
    left_out = frozenset() if same_processor else FIGURES_BY_PROCESSOR
    for name in sorted({*recorded.facts, *current.facts} - {PROCESSOR_FACT}):
        before, after = recorded.facts.get(name), current.facts.get(name)
        if before != after:
            yield f"{name}: {before or 'not reported'}, now {after or 'not reported'}"
    if recorded.decisions is not None and current.decisions is not None:
        for name in sorted({*recorded.decisions, *current.decisions}):
            was_said, is_said = recorded.decisions.get(name), current.decisions.get(name)
            if was_said != is_said:
                yield f"{name}: {was_said or 'not reported'}, now {is_said or 'not reported'}"
    for name in sorted({*recorded.figures, *current.figures} - left_out):
        was, is_ = recorded.figures.get(name), current.figures.get(name)
        if was is None or is_ is None:
            words = ("not reported" if value is None else f"{value:g}" for value in (was, is_))
            yield f"{name}: {', now '.join(words)}"
        elif abs(is_ - was) > MARGIN * abs(was) + (ROUNDED_GIB if name.endswith("_gib") else 0):
            share = f" ({is_ / was - 1:+.0%})" if was else ""
            yield f"{name}: {was:g}, now {is_:g}{share}"
