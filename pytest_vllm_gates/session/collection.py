"""A shipped gate is found and judges as written, whatever the project around it calls its own.

The shipped gates: their files, and what each says of itself.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.pooling import GATES as GATES_OF_POOLING, POOLING, WRITES_NO_TEXT

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from pytest_vllm_gates.catalog.family import Family

PACKAGE = __name__.partition(".")[0]


class GateModule(pytest.Module):
    """A shipped gate's file: its tests are found whatever a project calls its own."""

    def funcnamefilter(self, name: str) -> bool:
        """Return whether a function of that name is a test."""
        return name.startswith("test_")


def refuse(items: Iterable[pytest.Item], gates: Container[Path]) -> None:
    """Raise `pytest.UsageError` where a conftest.py puts another fixture in the place of a gate's.

    What such a fixture returns is no server, and its failures would be blamed on one.
    """
    for item in items:
        if item.path not in gates:
            continue
        # Of all fixtures of one name, the last is the one that a test gets.
        for name, (*others, taken) in item._fixtureinfo.name2fixturedefs.items():  # type: ignore[attr-defined]  # noqa: SLF001
            file = _file(taken)
            if others and _is_ours(others[0]) and not _is_ours(taken) and file != str(item.path):
                raise pytest.UsageError(
                    f"{file}: its fixture {name!r} takes the place of the gates' own, and they "
                    "would judge with it\n"
                    "rename it, or leave it out: pytest --noconftest --model ..."
                )


def _file(fixture: pytest.FixtureDef[object]) -> str:
    return inspect.getsourcefile(fixture.func) or fixture.func.__module__


def _is_ours(fixture: pytest.FixtureDef[object]) -> bool:
    return fixture.func.__module__.partition(".")[0] == PACKAGE


GATES = Path(__file__).parent.parent / "gates"


def gate_files() -> dict[str, Path]:
    """Return the shipped gates' files by the gate's name."""
    return {path.stem.removeprefix("test_"): path for path in sorted(GATES.glob("test_*.py"))}


def not_applicable(family: Family) -> dict[str, str]:
    """Return why a gate does not apply to a family, by the gate's name.

    A family that pools has no answers to judge.
    """
    if family.pooling is None:
        return dict(family.not_applicable)
    answering = dict.fromkeys(gate_files().keys() - GATES_OF_POOLING, WRITES_NO_TEXT)
    return {**dict(sorted(answering.items())), **family.not_applicable}


def unasked(family: Family) -> set[str]:
    """Return the gates that are not for a family of its kind, and of which nothing is said."""
    return set() if family.pooling else {POOLING}


def titles() -> dict[str, str]:
    """Return the gates' titles, the first line of each docstring, by the gate's name."""
    return {name: _first_line(path) for name, path in gate_files().items()}


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    return text.splitlines()[0]
