"""Writes files whole or not at all, and finds the cache folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_whole(path: Path, text: str) -> None:
    """Write `text` to a file aside in the same folder, flush it, and rename it into place."""
    aside = _aside(path, text)
    try:
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def write_together(texts: Mapping[Path, str]) -> None:
    """Write several files, in their order, or none: a failure puts back what was there before."""
    asides: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    try:
        for path, text in texts.items():
            asides[path] = _aside(path, text)
        for path, aside in asides.items():
            before[path] = path.read_bytes() if path.exists() else None
            aside.replace(path)
    except BaseException:
        for path, content in before.items():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
        for aside in asides.values():
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
        raise


def _aside(path: Path, text: str) -> Path:
    """Write `text` to a hidden file beside `path`, flushed to the disk; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    aside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.chmod(0o644)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    return aside


CACHE_VARIABLE = "VLLM_GATES_CACHE"


def default_cache() -> Path:
    """Return the folder environments are kept in: `$VLLM_GATES_CACHE`, else the user's cache."""
    configured = os.environ.get(CACHE_VARIABLE)
    return (
        Path(configured).expanduser().resolve()
        if configured
        else user_cache_path("pytest-vllm-gates")
    )
