"""Small environments: a folder of distributions with their file lists."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def distribution(
    packages: Path,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    direct_url: Mapping[str, Any] | None = None,
    *,
    installer: str = "uv",
) -> Path:
    """Install a distribution with these files; return its folder of metadata."""
    module = name.replace("-", "_")
    metadata = packages / f"{module}-{version}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    brought = files if files is not None else {f"{module}/__init__.py": f"version = {version!r}\n"}
    written = {
        **brought,
        f"{metadata.name}/METADATA": f"Name: {name}\nVersion: {version}\n",
        f"{metadata.name}/INSTALLER": installer,
    }
    lines = []
    for path, text in written.items():
        place = packages / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(text.encode())}")
    lines.append(f"../../../bin/{name},sha256=another-in-each-environment,9")
    lines.append(f"{module}/__pycache__/__init__.cpython-312.pyc,,")
    lines.append(f"{metadata.name}/RECORD,,")
    if direct_url is not None:
        (metadata / "direct_url.json").write_text(json.dumps(direct_url))
        lines.append(f"{metadata.name}/direct_url.json,sha256=whatever,1")
    (metadata / "RECORD").write_text("\n".join(lines) + "\n")
    return metadata


def interpreter(program: Path, packages: Path) -> Path:
    """Make something that answers like an interpreter that has these packages alone."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program
