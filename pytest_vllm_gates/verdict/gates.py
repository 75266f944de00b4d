"""The shipped gates: their files, their titles, and which of them apply to a family."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.pooling import GATES as GATES_OF_POOLING, POOLING, WRITES_NO_TEXT

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

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
    """Return the gates that are not for a family of its kind, and are not reported."""
    return set() if family.pooling else {POOLING}


def titles() -> dict[str, str]:
    """Return the gates' titles, the first line of each docstring, by the gate's name."""
    return {name: _first_line(path) for name, path in gate_files().items()}


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    return text.splitlines()[0]
