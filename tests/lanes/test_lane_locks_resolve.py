"""The shipped locks against the package sources configured here; nothing is downloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import installed, uv

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.real
@pytest.mark.parametrize("name", ["cpu", "cpu-previous", "cuda"])
def test_every_package_of_a_shipped_lock_can_be_installed(name: str, tmp_path: Path) -> None:
    lock = lanes.load(name, tmp_path).lock_path
    assert lock is not None
    environ, arguments = uv.for_uv(os.environ)
    program, venv = str(uv.find()), str(tmp_path / "venv")
    subprocess.run([program, "venv", "-q", "--python", sys.executable, venv], check=True)
    result = subprocess.run(
        [program, "pip", "install", "--dry-run", "--no-deps", "-r", str(lock),
         "--python", f"{venv}/bin/python", *arguments],
        env=environ, cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    would = {line[3:] for line in result.stderr.splitlines() if line.startswith(" + ")}
    pins = installed.pinned_requirements(lock, ".".join(map(str, sys.version_info[:3])))
    versions = dict(line.split("==") for line in would)
    assert installed.difference(pins, versions) == []
