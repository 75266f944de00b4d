"""The shipped miniatures: their files, and whether they are complete."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent.parent / "miniatures"
RECIPES = HERE / "recipes"


class MiniatureError(Exception):
    """A miniature has a fault; the message ends with the next step."""


def names() -> tuple[str, ...]:
    """Every miniature with a recipe."""
    return tuple(sorted(file.parent.name for file in RECIPES.glob("*/recipe.toml")))


CHECKPOINTS = HERE / "checkpoints"
LOCK = "lock.json"


def sha256_of(file: Path) -> str:
    """Hex digest of a file's bytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_lock(folder: Path, built: Mapping[str, Any]) -> None:
    """Record size and digest of every file in a built checkpoint, and how it was built."""
    files = {
        file.relative_to(folder).as_posix(): {
            "bytes": file.stat().st_size,
            "sha256": sha256_of(file),
        }
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != LOCK
    }
    text = json.dumps({"built": built, "files": files}, indent=2, ensure_ascii=False)
    (folder / LOCK).write_text(text + "\n", encoding="utf-8")


def check(name: str, folder: Path, command: str = "build") -> None:
    """Raise if a file of this folder is missing, cut short or changed.

    `command` is the command that makes it again.
    """
    remedy = (
        "reinstall pytest-vllm-gates, or build it again: "
        f"python -m pytest_vllm_gates.miniatures {command} {name}"
    )
    lock = folder / LOCK
    try:
        files = json.loads(lock.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError) as error:
        raise MiniatureError(f"miniature {name}: {lock}: {error}\n{remedy}") from error
    for file_name, expected in files.items():
        file = folder / file_name
        if not file.is_file():
            raise MiniatureError(f"miniature {name}: {file} is missing\n{remedy}")
        size = file.stat().st_size
        if size != expected["bytes"]:
            raise MiniatureError(
                f"miniature {name}: {file} has {size} bytes, expected {expected['bytes']}\n{remedy}"
            )
        digest = sha256_of(file)
        if digest != expected["sha256"]:
            raise MiniatureError(
                f"miniature {name}: {file} has SHA-256 {digest}, "
                f"expected {expected['sha256']}\n{remedy}"
            )


def path(name: str) -> Path:
    """Return the folder of a shipped checkpoint, its files checked."""
    if name not in names():
        raise MiniatureError(f"no miniature {name!r}\nknown ones: {', '.join(names())}")
    folder = CHECKPOINTS / name
    check(name, folder)
    return folder
