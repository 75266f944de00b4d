"""What each gate says of itself: the first line of its docstring."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def titles(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the gates' titles by the gate's name."""
    return {name: _first_line(path) for name, path in files.items()}


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    return text.splitlines()[0]
