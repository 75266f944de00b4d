"""What is in a lane's overlay: the files put first on the server's import path."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_VARIABLE = "VLLM_GATES_WITHOUT_REPAIRS"
"""Tells an overlay's `sitecustomize` which repairs to leave out, by name, with commas."""
UNTITLED = "no description"


@dataclass(frozen=True)
class Repair:
    """One documented repair of an overlay."""

    name: str
    summary: str
    """The first line of the file's docstring."""


def repairs(overlay: Path | None) -> tuple[Repair, ...]:
    """Return the repairs in an overlay folder, by name; nothing of it is imported.

    A repair is any Python file but `sitecustomize.py` and those whose name starts with `_`.
    """
    if overlay is None:
        return ()
    files = [
        path
        for path in sorted(overlay.rglob("*.py"))
        if path.name != "sitecustomize.py" and not path.name.startswith("_")
    ]
    return tuple(Repair(path.stem, _summary(path)) for path in files)


def _summary(path: Path) -> str:
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}: not a readable Python file: {error}") from error
    return text.splitlines()[0] if text else UNTITLED
