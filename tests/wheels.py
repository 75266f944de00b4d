"""Builds the project's distributions, and installs them into environments with nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from pytest_vllm_gates.environment import uv as environment_uv

ROOT = Path(__file__).parents[1]
NEWER = ("3.14", "3.13", "3.12")
NO_NEWER = "no newer Python is installed: " + " or ".join(NEWER)
ASK = "import sys; print(sys.executable)"


def build(checkout: Path, folder: Path) -> tuple[Path, Path]:
    """Build a checkout's sdist and, from that, its wheel; return the wheel and the sdist."""
    run_uv(folder, "build", "--quiet", "--out-dir", str(folder), str(checkout))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def newer_python() -> str | None:
    """Return the newest Python of this machine that the project names besides its oldest."""
    for version in NEWER:
        program = shutil.which(f"python{version}")
        # A shim of pyenv's runs what was chosen, and says no where nothing was.
        env = os.environ | {"PYENV_VERSION": version}
        if program and (python := _output_of([program, "-c", ASK], env)):
            return python
        if python := _output_of(
            [str(environment_uv.find()), "python", "find", "--no-python-downloads", version]
        ):
            return python
    return None


def install(folder: Path, wheel: Path, python: str) -> Path:
    """Return the folder of the programs of an environment that holds the wheel alone."""
    run_uv(folder, "venv", "--quiet", "--python", python, str(folder / "environment"))
    programs = folder / "environment" / "bin"
    run_uv(folder, "pip", "install", "--quiet", "--python", str(programs / "python"), str(wheel))
    return programs


def run_uv(folder: Path, *arguments: str) -> str:
    """Run uv in a folder, from pip's configured sources; return what it prints."""
    env, more = environment_uv.for_uv(os.environ)
    more = more if arguments[0] == "pip" else []
    done = subprocess.run(
        [environment_uv.find(), *arguments, *more],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _output_of(command: list[str], env: dict[str, str] | None = None) -> str | None:
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None
