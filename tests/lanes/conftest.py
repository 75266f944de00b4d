"""A project with an interpreter that has a small vLLM and torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from environment.site_packages import distribution, interpreter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def small_project(tmp_path: Path) -> Path:
    """Return the project's folder."""
    packages = tmp_path / "packages"
    distribution(packages, "vllm", "0.32.0")
    files = {"torch/version.py": "cuda: str | None = '13.0'\n"}
    distribution(packages, "torch", "2.13.0", files)
    interpreter(tmp_path / "bin" / "python", packages)
    (tmp_path / "lanes").mkdir()
    return tmp_path
