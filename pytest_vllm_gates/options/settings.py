"""The settings of the project's own configuration, where pytest reads another one or none.

pytest takes the value of an option that exists for a path of tests, and looks for its configuration
above all of these. `--gates-report /elsewhere/out` would lose the project's settings the second
time. Only the settings of this plugin are read here; `addopts` and the like stay pytest's.
"""

from __future__ import annotations

import shlex
import tomllib
from typing import TYPE_CHECKING, Any

import iniconfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.options.record import Option

# In pytest's order: of the files in one folder, the first that has the table.
FILES = {
    "pytest.toml": ("pytest",), ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",), ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool", "pytest"), "tox.ini": ("pytest",), "setup.cfg": ("tool:pytest",),
}  # fmt: skip
OLD_TABLE = "ini_options"
TRUE = ("1", "y", "yes", "t", "true", "on")


def of_project(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the file that configures pytest in a project's folder, and its table.

    None where there is no such file, or where it cannot be read: pytest reports that.
    """
    for name, keys in FILES.items():
        path = folder / name
        try:
            table = _toml(path, keys) if path.suffix == ".toml" else _ini(path, keys[0])
        except (OSError, ValueError, iniconfig.ParseError):
            continue
        if table is not None:
            return path, table
    return None


def value(option: Option, table: Mapping[str, Any]) -> Any:
    """Return the setting of an option as pytest would give it; None where there is none."""
    found = table.get(option.ini)
    if found is None:
        return None
    if option.kind.ini == "bool":
        return found if isinstance(found, bool) else str(found).strip().lower() in TRUE
    if option.kind.ini == "args":
        return [*map(str, found)] if isinstance(found, list) else shlex.split(str(found))
    return str(found)


def _toml(path: Path, keys: tuple[str, ...]) -> Mapping[str, Any] | None:
    table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table.get(OLD_TABLE, table) if isinstance(table, dict) else None


def _ini(path: Path, section: str) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    return iniconfig.IniConfig(str(path)).sections.get(section)
