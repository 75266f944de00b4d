"""A checkpoint lies in a folder here, or on the Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def test_folder_source_is_local(tmp_path: Path) -> None:
    assert Checkpoint("mine", str(tmp_path)).folder == tmp_path
    assert Checkpoint("mine", "org/model").folder is None
    (tmp_path / "file").touch()
    assert Checkpoint("mine", str(tmp_path / "file")).folder is None
