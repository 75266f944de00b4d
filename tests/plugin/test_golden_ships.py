"""A gate can tell a golden of the package from the project's own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pytest_vllm_gates.session import golden_folders

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

FOLDER = "qwen3.5/main/miniature"
GATE = '''\
"""A golden comes with the package."""


def test_it_ships(golden):
    assert golden.ships({name!r})
    assert not golden.ships("nowhere")
'''


def a_shipped_golden() -> Path:
    return min((golden_folders.shipped_root() / FOLDER).iterdir())


def own_folder(project: Project) -> Path:
    own = project.path / "golden" / FOLDER
    own.mkdir(parents=True)
    return own


def outcomes(project: Project) -> set[str]:
    gate = project.write("my_gates/test_shipped.py", GATE.format(name=a_shipped_golden().stem))
    project.gates(str(gate), "-k", "it_ships")
    return {*project.outcomes().values()}


def test_golden_of_the_package_ships(project: Project) -> None:
    assert outcomes(project) == {"PASS"}


def test_copy_of_it_in_a_checkout_ships(project: Project) -> None:
    shutil.copy(a_shipped_golden(), own_folder(project))
    assert outcomes(project) == {"PASS"}


def test_own_golden_does_not_ship(project: Project) -> None:
    text = a_shipped_golden().read_text(encoding="utf-8")
    (own_folder(project) / a_shipped_golden().name).write_text(f"{text}\n", encoding="utf-8")
    assert outcomes(project) == {"FAIL"}
