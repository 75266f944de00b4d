"""Runs code with the overlay, beside a small module in place of one of vLLM's."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.of_release import OVERLAY_SWITCH

if TYPE_CHECKING:
    from pathlib import Path

OVERLAY = lanes.SHIPPED / "cpu-overlay"


def write_module(folder: Path, name: str, text: str) -> None:
    """Write a module by its whole name, and the packages that it is in."""
    *packages, last = name.split(".")
    for package in packages:
        folder /= package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{last}.py").write_text(text)


def lines_of(code: str, folder: Path, left_out: str = "") -> list[str]:
    """Return what code prints that imports from a folder; `left_out` are repairs, with commas."""
    path = os.pathsep.join(map(str, (OVERLAY, folder)))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, OVERLAY_SWITCH: left_out},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
