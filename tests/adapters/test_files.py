"""Adapters' folders are read, and unfit copies have faults that a server must refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_vllm_gates.adapters import files
from pytest_vllm_gates.adapters.types import AdapterFiles
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import adapters, miniatures, safetensors
from pytest_vllm_gates.errors import UserError

MINIATURE = "qwen3.5"


@pytest.fixture
def shipped() -> tuple[AdapterFiles, ...]:
    checkpoint = Checkpoint("miniature", str(miniatures.path(MINIATURE)))
    return files.of(checkpoint, {}, Path())


def test_a_miniature_brings_its_adapters(shipped: tuple[AdapterFiles, ...]) -> None:
    assert [(one.name, one.rank, one.begins) for one in shipped] == [
        ("sailor", 8, "Aye!"),
        ("diary", 4, "Monday:"),
    ]
    assert files.of(Checkpoint("x", str(miniatures.path("glm-4.7"))), {}, Path()) == ()
    assert files.of(Checkpoint("x", "org/on-the-hub"), {}, Path()) == ()


def test_shipped_adapters_are_whole_and_small() -> None:
    for name in miniatures.names():
        for folder in adapters.paths(name).values():
            assert sum(file.stat().st_size for file in folder.iterdir()) <= 300_000
            config = json.loads((folder / files.CONFIG).read_text())
            recipe = next(one for one in adapters.recipes(name) if one.name == folder.name)
            assert (config["r"], config["lora_alpha"]) == (recipe.rank, recipe.alpha)
            assert config["target_modules"] == list(recipe.modules)


def test_a_lane_names_its_own(tmp_path: Path, shipped: tuple[AdapterFiles, ...]) -> None:
    (tmp_path / "own").symlink_to(shipped[0].folder)
    checkpoint = Checkpoint("miniature", str(miniatures.path(MINIATURE)))
    (own,) = files.of(checkpoint, {"sql": "own"}, tmp_path)
    assert (own.name, own.folder, own.rank) == ("sql", tmp_path / "own", 8)
    with pytest.raises(UserError, match=r"adapter sql: .*none/adapter_config\.json does not exist"):
        files.of(checkpoint, {"sql": "none"}, tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / files.CONFIG).write_text('{"r": "8"}')
    with pytest.raises(UserError, match="r is '8', expected 1 to 512"):
        files.of(checkpoint, {"sql": "bad"}, tmp_path)


def test_the_flags_have_room_for_the_highest_rank(
    shipped: tuple[AdapterFiles, ...], tmp_path: Path
) -> None:
    sailor, diary = shipped
    assert files.flags(()) == {}
    assert files.flags(shipped) == {
        "max_lora_rank": 8,
        "lora_modules": [f"sailor={sailor.folder}", f"diary={diary.folder}"],
    }
    high = AdapterFiles("high", tmp_path, 200)
    assert files.flags([diary, high])["max_lora_rank"] == 256
    assert files.served_rank(files.flags(shipped)) == 8
    assert files.served_rank({}) == 16


def test_names_are_read_from_the_flag() -> None:
    assert files.names_in({}) == set()
    assert files.names_in({"lora_modules": "sql=/models/sql"}) == {"sql"}
    assert files.names_in({"lora_modules": ["a=/a", {"name": "b", "path": "/b"}]}) == {"a", "b"}


def test_unfit_copies_have_another_rank_another_base_and_no_weights(
    shipped: tuple[AdapterFiles, ...], tmp_path: Path
) -> None:
    sailor = shipped[0]
    made = files.write_unfit(sailor, tmp_path, 8)
    before = safetensors.header(sailor.folder / files.WEIGHTS)
    before.pop("__metadata__")
    gate = next(name for name in before if name.endswith("gate_proj.lora_A.weight"))
    rank, inputs = before[gate]["shape"]
    shapes = {
        "a rank that is too high": [16, inputs],
        files.SMALLER: [rank, inputs // 2],
        files.LARGER: [rank, inputs * 2],
        "unknown layers": [rank, inputs],
        "no weights": None,
    }
    assert [*made] == [*shapes]
    for what, shape in shapes.items():
        config = json.loads((made[what] / files.CONFIG).read_text())
        assert config["r"] == (shape[0] if shape else rank)
        if shape is None:
            assert [file.name for file in made[what].iterdir()] == [files.CONFIG]
            continue
        header = safetensors.header(made[what] / files.WEIGHTS)
        assert len(header) == len(before)
        unknown = what == "unknown layers"
        name = gate.replace(".layers.", f".{files.UNKNOWN_LAYERS}.") if unknown else gate
        assert header[name]["shape"] == shape
        size = (made[what] / files.WEIGHTS).stat().st_size
        assert size > safetensors.end_of(header)
