"""Names of families, weights and lanes mean the same in the plugin and in every command."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints import miniatures, named
from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


def test_weights_in_place_of_a_family_find_it(tmp_path: Path) -> None:
    weights = str(shutil.copytree(miniatures.path("qwen3.5"), tmp_path / "weights"))
    family, checkpoint, why = named.served(weights, None, lanes.load("cpu", tmp_path), tmp_path)
    assert (family.name, checkpoint.source) == ("qwen3.5", weights)
    assert "found by its architecture" in why


def test_member_is_served_with_the_lanes_checkpoint(tmp_path: Path) -> None:
    lane = lanes.load("cpu", tmp_path)
    family, checkpoint, why = named.served("qwen3.5/moe", None, lane, tmp_path)
    assert (family.name, checkpoint.name, why) == ("qwen3.5/moe", "miniature", "")


@pytest.mark.parametrize(
    "command", [("preflight", "--lane", "cpu"), ("lane", "diff", "cpu", "cpu-previous")]
)
def test_commands_take_weights_in_place_of_a_family(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    shutil.copytree(miniatures.path("qwen3.5"), tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--model", "./weights"]) in (0, 1)
    assert "unknown family" not in capsys.readouterr().err
