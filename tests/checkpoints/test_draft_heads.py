"""Draft heads are whole and small, belong to miniatures, and are refused if changed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import draft_heads, miniatures
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

MINIATURE = "llama-3"
WITH_HEAD = [name for name in miniatures.names() if draft_heads.recipe(name)]
MOST_BYTES = 300_000


def of(folder: Path) -> Path | None:
    return draft_heads.of(Checkpoint(folder.name, str(folder)))


def test_one_miniature_at_least_has_a_head() -> None:
    assert MINIATURE in WITH_HEAD
    assert sorted(path.name for path in draft_heads.FOLDER.iterdir()) == WITH_HEAD


@pytest.mark.parametrize("name", WITH_HEAD)
def test_shipped_heads_are_whole_and_small(name: str) -> None:
    folder = draft_heads.path(name)
    assert folder
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MOST_BYTES


def test_a_miniature_brings_its_head_and_other_checkpoints_bring_none(tmp_path: Path) -> None:
    assert of(miniatures.CHECKPOINTS / MINIATURE) == draft_heads.FOLDER / MINIATURE
    assert of(miniatures.CHECKPOINTS / "glm-4.7") is None
    assert of(tmp_path / MINIATURE) is None


def test_a_changed_head_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(draft_heads.FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(draft_heads, "FOLDER", tmp_path)
    (tmp_path / MINIATURE / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config\.json has 2 bytes") as caught:
        of(miniatures.CHECKPOINTS / MINIATURE)
    assert str(caught.value).endswith("python -m pytest_vllm_gates.miniatures draft-head llama-3")
