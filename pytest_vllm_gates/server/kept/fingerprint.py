"""Everything that decides what a boot would serve, part by part.

A kept server serves a run only if all parts are equal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pytest_vllm_gates import __version__
from pytest_vllm_gates.server import launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.environment.environment import Environment

HASHED_BYTES = 64 * 2**20
"""Larger files, the weights, are compared by size and time."""
DIGITS = 16
KEY = "VLLM_API_KEY"
# Variables that differ between terminals, logins or tests and do not affect a server.
IDLE_VARIABLES = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM\w*|COLORTERM|COLUMNS|LINES|LS_COLORS|PS\d|HIST\w*|WINDOWID|DISPLAY"
    r"|(SSH|TMUX|XDG|DBUS|GPG|VSCODE|ITERM|KITTY|WEZTERM|VTE|KONSOLE|GNOME|WAYLAND)_?\w*"
    r"|(PYTEST|COV|GITHUB|RUNNER|CI)(_\w*)?|INVOCATION_ID|JOURNAL_STREAM|" + KEY
)  # fmt: skip


def fingerprint(plan: launch.LaunchPlan, environment: Environment) -> dict[str, str]:
    """Return the parts that decide what a plan would serve; values are short texts or hashes."""
    return {
        "plugin": __version__,
        "lane": plan.lane.name,
        "checkpoint": f"{plan.checkpoint.source}@{plan.checkpoint.revision or ''}",
        "renderer alone": str(plan.renderer),
        "working folder": str(Path.cwd()),
        **dict(_command(plan)),
        **{
            f"variable {name}": _hash(value.encode())
            for name, value in launch.environment(plan, "").items()
            if not IDLE_VARIABLES.fullmatch(name)
        },
        **{f"package {name}": version for name, version in environment.versions.items()},
        **{f"source of {path}": _sources(path) for path in _packages(environment)},
        **_files("overlay", plan.overlay),
        **_files("checkpoint", plan.checkpoint.folder),
    }


def _command(plan: launch.LaunchPlan) -> Iterator[tuple[str, str]]:
    """Yield the program, each of its flags, and the files that they name."""
    parts: dict[str, list[str]] = {}
    name = "program"
    for word in launch.command(plan, port=0, alias=""):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = f"flag {name}"
            parts.setdefault(name, []).extend([value] if equals else [])
        else:
            parts.setdefault(name, []).append(word)
        path = Path(word.partition("=")[2] or word)
        with contextlib.suppress(OSError, ValueError):
            if path.is_file():
                yield f"file {path}", _file(path)
    for name, words in parts.items():
        yield name, " ".join(words)


def _packages(environment: Environment) -> Iterator[Path]:
    """Yield the folder of the environment's vLLM, and the sources of an editable one."""
    for folder in environment.folders:
        if (path := folder / "vllm").is_dir():
            yield path
        for file in folder.glob("vllm*.dist-info/direct_url.json"):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                direct_url = json.loads(file.read_text(encoding="utf-8"))
                if direct_url.get("dir_info", {}).get("editable"):
                    yield Path(unquote(urlsplit(direct_url["url"]).path)) / "vllm"


def _sources(package: Path) -> str:
    """Return a hash over the sizes and times of a package's modules."""
    lines = []
    for folder, folders, files in os.walk(package):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".py", ".so")):
                path = os.path.join(folder, name)  # noqa: PTH118 - thousands of files
                with contextlib.suppress(OSError):
                    status = os.stat(path)  # noqa: PTH116
                    lines.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return _hash("\n".join(lines).encode())


def _files(kind: str, folder: Path | None) -> dict[str, str]:
    """Return the hash of each file of a folder; for large files, size and time."""
    if folder is None:
        return {}
    return {f"{kind} {path.relative_to(folder)}": _file(path) for path in _below(folder)}


def _below(folder: Path) -> Iterable[Path]:
    return (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    )


def _file(path: Path) -> str:
    status = path.stat()
    if status.st_size > HASHED_BYTES:
        return f"{status.st_size} bytes, {status.st_mtime_ns}"
    return _hash(path.read_bytes())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]
