"""The settings of the project's own configuration, if pytest reads another file or none.

If the value of an option is an existing path, pytest reads it as a path of tests and looks for its
configuration above all such paths. With `--gates-report /elsewhere/out` the second run would lose
the project's settings. Only this plugin's settings are read here; pytest reads `addopts` etc.
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

# In pytest's order: the first file of a folder that has the table counts.
FILES = {
    "pytest.toml": ("pytest",), ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",), ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool", "pytest"), "tox.ini": ("pytest",), "setup.cfg": ("tool:pytest",),
}  # fmt: skip
OLD_TABLE = "ini_options"
TRUE = ("1", "y", "yes", "t", "true", "on")


def of_project(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the file that configures pytest in a project's folder, and its table.

    None if the file is missing or cannot be read: pytest reports that.
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
    """Return the setting of an option as pytest would return it; None if it is not set."""
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
