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
"""What the processor alone decides: another one is no change of the server."""


class Pattern(toml.Record):
    """One thing a log may tell: regular expressions whose one group is its value."""

    name: str
    patterns: tuple[ValuePattern, ...] = Field(min_length=1)
    every: bool = False
    """Whether several finds are one fact together."""


class Patterns(toml.Record):
    """The file."""

    facts: tuple[Pattern, ...]
    figures: tuple[Pattern, ...]
    phases: tuple[Pattern, ...]


@dataclass(frozen=True)
class Startup:
    """What the log and the metrics of one boot tell; what they do not tell is absent."""

    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Tokens, GiB and requests, as each one's name says."""
    cache: Mapping[str, str] = field(default_factory=dict)
    """The labels of `vllm:cache_config_info`."""
    decisions: Mapping[str, str] | None = None
    """What vLLM decided where no flag asked, by topic of `fallbacks.toml`; None where that is not
    known, as in a golden that an older version recorded."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the server's log gives for a phase of the start. They are not compared: another
    boot of the same server takes another time."""

    def concurrency_at(self, tokens: int) -> float | None:
        """Return how many requests of so many tokens have room in the KV cache at once.

        vLLM tells it for requests of the longest length; shorter ones are taken to need less in
        proportion, which for sliding windows and states is too good by a little.
        """
        concurrency, longest = (
            self.figures.get(name) for name in ("kv_concurrency", "kv_concurrency_tokens")
        )
        return concurrency * longest / tokens if concurrency and longest else None

    @property
    def kv_bytes(self) -> int | None:
        """The memory set aside for the KV cache, as far as the log's rounding tells it."""
        gib = self.figures.get("kv_gib")
        return round(gib * GIB) if gib is not None else None

    @property
    def cpu_ssm_cache_dtype(self) -> str | None:
        """The type vLLM's CPU platform gave a recurrent state; None where it left the model's."""
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
"""The share by which a figure may differ: memory that others hold moves a GPU's by a little."""
ROUNDED_GIB = 0.01
"""By what two figures may differ that were one before each was rounded to two decimals."""
FACTS, FIGURES, DECISIONS = "facts", "figures", "decisions"
FIGURES_BY_PROCESSOR = frozenset({"kv_tokens", "kv_concurrency"})
"""What follows from that fact; `memory_plan` judges these figures on any processor."""


def as_toml(title: str, startup: Startup) -> str:
    """Lay out a start as a golden, one line a fact."""
    lines = [f"{TITLE}{title}"]
    tables: dict[str, Mapping[str, Any]] = {FACTS: startup.facts, FIGURES: startup.figures}
    if startup.decisions is not None:
        tables[DECISIONS] = startup.decisions
    for name, table in tables.items():
        lines += ["", name, *(f"{key}: {table[key]}" for key in sorted(table))]
    return "\n".join([*lines, "", END, ""])


def parsed(text: str) -> Startup:
    """Read what `written` lays out; raises `CorruptGolden` for anything else."""
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
    """Yield one sentence for everything that is otherwise now.

    vLLM keeps a recurrent state in another type on another processor. The cache figures of two such
    starts cannot be compared, and are left out. Decisions are compared where both starts have them.
    """
    same_processor = recorded.cpu_ssm_cache_dtype == current.cpu_ssm_cache_dtype
    left_out = frozenset() if same_processor else FIGURES_BY_PROCESSOR
    for name in sorted({*recorded.facts, *current.facts} - {PROCESSOR_FACT}):
        before, after = recorded.facts.get(name), current.facts.get(name)
        if before != after:
            yield f"{name}: {before or 'not told'}, now {after or 'not told'}"
    if recorded.decisions is not None and current.decisions is not None:
        for name in sorted({*recorded.decisions, *current.decisions}):
            was_said, is_said = recorded.decisions.get(name), current.decisions.get(name)
            if was_said != is_said:
                yield f"{name}: {was_said or 'not told'}, now {is_said or 'not told'}"
    for name in sorted({*recorded.figures, *current.figures} - left_out):
        was, is_ = recorded.figures.get(name), current.figures.get(name)
        if was is None or is_ is None:
            words = ("not told" if value is None else f"{value:g}" for value in (was, is_))
            yield f"{name}: {', now '.join(words)}"
        elif abs(is_ - was) > MARGIN * abs(was) + (ROUNDED_GIB if name.endswith("_gib") else 0):
            share = f" ({is_ / was - 1:+.0%})" if was else ""
            yield f"{name}: {was:g}, now {is_:g}{share}"
