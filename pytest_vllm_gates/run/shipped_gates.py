"""The shipped gates: their files, and what each says of itself."""

from __future__ import annotations

import ast
from pathlib import Path

GATES = Path(__file__).parent.parent / "gates"


def gate_files() -> dict[str, Path]:
    """Return the shipped gates' files by the gate's name."""
    return {path.stem.removeprefix("test_"): path for path in sorted(GATES.glob("test_*.py"))}


def titles() -> dict[str, str]:
    """Return the gates' titles, the first line of each docstring, by the gate's name."""
    return {name: _first_line(path) for name, path in gate_files().items()}


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    return text.splitlines()[0]
