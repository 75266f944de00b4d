"""A lane's overlay, and the environment variables of a process in a lane.

An overlay is a folder that comes first on the import path of the lane's server, renderer and ranks.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.environment import python_source
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import CACHE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.lane import Lane

WITHOUT_VARIABLE = "VLLM_GATES_WITHOUT_REPAIRS"
"""The variable with the repairs that an overlay's `sitecustomize` leaves out, with commas."""
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
        text = ast.get_docstring(python_source.parse(path.read_text(encoding="utf-8")))
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}: not a readable Python file: {error}") from error
    return text.splitlines()[0] if text else UNTITLED


# Variables with which this process's Python would leak into the lane's, and others not of vLLM.
FOREIGN = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "VIRTUAL_ENV",
    CACHE_VARIABLE,
)  # fmt: skip


def lane_environment(
    lane: Lane,
    python: Path | None,
    overlay: Path | None,
    variables: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return a lane process's environment: this one, `defaults`, the lane's, then `variables`."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    env |= {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"} | dict(defaults or {})
    if python:
        env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH", os.defpath)])
    env |= lane.env | dict(variables)
    if overlay:
        paths = [str(overlay), lane.env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return env
