"""The lanes there are, as a document and as a person reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.facts.bundle import MAIN_PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

DEFAULT = "*"


@dataclass(frozen=True)
class Row:
    """One lane, and what is known of its environment."""

    name: str
    form: str
    title: str
    default: bool
    """Whether it is the one a run on this machine takes."""
    python: Path | None = None
    """The interpreter of the environment; None where none is made here."""
    versions: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def shown(self) -> dict[str, str]:
        """The versions that decide how it serves."""
        return {name: self.versions[name] for name in MAIN_PACKAGES if name in self.versions}

    @property
    def state(self) -> str:
        """Whether there is an environment."""
        if self.problem:
            return "faulty"
        if self.form in ("command", "base_url"):
            return "runs elsewhere"
        return "made" if self.python else "not made"


def document(row: Row) -> dict[str, Any]:
    """Return a lane as JSON."""
    return {
        "lane": row.name,
        "form": row.form or None,
        "title": row.title or None,
        "default": row.default,
        "state": row.state,
        "python": str(row.python) if row.python else None,
        "versions": row.shown,
        "problem": row.problem or None,
    }


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield two lines a lane: what it is, and what it brings."""
    names = max((len(row.name) for row in rows), default=0)
    for row in rows:
        mark = DEFAULT if row.default else " "
        head = f"{mark} {row.name:<{names}}  {row.form or '?':<8}  {row.state:<14}"
        yield f"{head}  {row.title or row.problem}".rstrip()
        indent = " " * (names + 4)
        if row.title and row.problem:
            yield f"{indent}{row.problem}"
        if row.shown:
            pinned = "" if row.python else "its lock pins: "
            yield f"{indent}{pinned}{', '.join(f'{name} {one}' for name, one in row.shown.items())}"
        if row.python:
            yield f"{indent}{row.python}"
    if any(row.default for row in rows):
        yield f"{DEFAULT} the lane of a run on this machine that names none"
