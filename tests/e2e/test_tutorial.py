"""The tutorial works when it is pasted: each command prints the lines that the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__")
LIMIT_S = 900.0


class Step(NamedTuple):
    """One block of commands, and the lines that the page shows of their output."""

    commands: str
    shown: tuple[str, ...]


def steps() -> list[Step]:
    """Return the tutorial's blocks of commands in order."""
    found: list[Step] = []
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "console":
            found.append(Step(text, ()))
        else:
            found[-1] = Step(found[-1].commands, tuple(text.splitlines()))
    return found


def plain(text: str) -> str:
    """Return text with figures and spaces that change from run to run made equal."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(?:\.\d+)?", "N", text)).strip()


def test_tutorial_has_steps_from_installation_to_promotion() -> None:
    blocks = steps()
    assert "pip install" in blocks[0].commands
    verdicts = [line for step in blocks for line in step.shown if line.startswith("verdict:")]
    assert verdicts == [
        f"verdict: {one}" for one in ("HOLD", "PROMOTE", "REJECT", "REJECT", "PROMOTE")
    ]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.every_core
def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    clone = tmp_path / "pytest-vllm-gates"
    shutil.copytree(ROOT, clone, ignore=NOT_COPIED)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env.pop("VIRTUAL_ENV", None)
    state = f"cd {clone}"
    for step in steps():
        # Folder and PATH of one block are those of the next, as in one terminal.
        script = f"{state}\n{step.commands}\necho; echo state: $PWD $PATH\n"
        ran = subprocess.run(
            ["bash", "-c", script],
            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        print(ran.stdout)
        folder, path = re.findall(r"^state: (\S+) (.*)$", ran.stdout, re.MULTILINE)[-1]
        state = f"cd {folder}; export PATH={path}"
        printed = [plain(line) for line in ran.stdout.splitlines()]
        for line in step.shown:
            assert any(plain(line) in one for one in printed), f"{step.commands}\n{ran.stdout}"
