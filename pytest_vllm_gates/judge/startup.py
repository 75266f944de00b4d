"""Did a server start as the last recorded one did?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.server.startup_check import Startup

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLE = "golden 1: start-up: "
END = "end of golden"
MARGIN = 0.05
"""The share by which a figure may differ: memory that others hold moves a GPU's by a little."""
ROUNDED_GIB = 0.01
"""By what two figures may differ that were one before each was rounded to two decimals."""
FACTS, FIGURES = "facts", "figures"


def written(title: str, startup: Startup) -> str:
    """Lay out a start as a golden, one line a fact."""
    lines = [f"{TITLE}{title}"]
    for name, table in ((FACTS, startup.facts), (FIGURES, startup.figures)):
        lines += ["", name, *(f"{key}: {table[key]}" for key in sorted(table))]
    return "\n".join([*lines, "", END, ""])


def parsed(text: str) -> Startup:
    """Read what `written` lays out; raises `CorruptGolden` for anything else."""
    tables: dict[str, dict[str, str]] = {FACTS: {}, FIGURES: {}}
    target = tables[FACTS]
    for line in text.splitlines()[1:-1]:
        if line in tables:
            target = tables[line]
        elif line:
            key, _, value = line.partition(": ")
            target[key] = value
    try:
        figures = {key: float(value) for key, value in tables[FIGURES].items()}
    except ValueError as error:
        raise CorruptGolden(f"the start-up golden cannot be read: {error}") from error
    return Startup(tables[FACTS], figures)


def changes(recorded: Startup, now: Startup) -> Iterator[str]:
    """Yield one sentence for everything that is otherwise now."""
    for name in sorted({*recorded.facts, *now.facts}):
        before, after = recorded.facts.get(name), now.facts.get(name)
        if before != after:
            yield f"{name}: {before or 'not told'}, now {after or 'not told'}"
    for name in sorted({*recorded.figures, *now.figures}):
        was, is_ = recorded.figures.get(name), now.figures.get(name)
        if was is None or is_ is None:
            told = ("not told" if one is None else f"{one:g}" for one in (was, is_))
            yield f"{name}: {', now '.join(told)}"
        elif abs(is_ - was) > MARGIN * abs(was) + (ROUNDED_GIB if name.endswith("_gib") else 0):
            share = f" ({is_ / was - 1:+.0%})" if was else ""
            yield f"{name}: {was:g}, now {is_:g}{share}"
