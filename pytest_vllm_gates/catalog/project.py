"""Finds the project's folder, which has `lanes/`, `families/`, `golden/` and the like.

The plugin and every command call `find`, so that both find the same project. pytest's rootdir does
not work: pytest reads an option's value that is an existing path as a path of tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent

# Files that only a project of the gates has. Other tools have such folders, with other files.
CONTENTS = (
    "lanes/*.toml", "families/*.toml", "conversations/*.toml", "signatures/*.toml",
    "robustness/*.toml", "waivers.toml", "known_defects.toml", "forced_texts.toml", ".vllm-gates",
    "golden/incidents", "golden/baselines", "golden/*/*/*.txt", "golden/*/*/*/*.txt",
)  # fmt: skip
CONFIGURATION = (
    "pyproject.toml", "pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "setup.py",
)  # fmt: skip
# Files of several tools: they count only with pytest's table.
SHARED = {
    "tox.ini": re.compile(r"^\[pytest\]", re.MULTILINE),
    "setup.cfg": re.compile(r"^\[tool:pytest\]", re.MULTILINE),
}


def find(*starts: Path) -> Path:
    """Return the nearest project's folder from a start upward; else the first start.

    Later starts, which need not exist, count only without a project from the earlier ones upward.
    A project's folder has a file that only a project of the gates has, or a configuration of
    Python's tools.
    """
    absolute = [start.absolute() for start in starts]
    return next((folder for start in absolute for folder in _marked(start)), absolute[0])


def current() -> Path:
    """Return the project's folder for a command in the working folder."""
    return find(Path.cwd())


def _marked(start: Path) -> Iterator[Path]:
    for folder in (start, *start.parents):
        if folder != PACKAGE and folder.is_dir() and _is_project(folder):
            yield folder


def _is_project(folder: Path) -> bool:
    if any((folder / name).is_file() for name in CONFIGURATION):
        return True
    if any(any(folder.glob(pattern)) for pattern in CONTENTS):
        return True
    return any(_has(folder / name, table) for name, table in SHARED.items())


def _has(path: Path, table: re.Pattern[str]) -> bool:
    try:
        return bool(table.search(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return False
