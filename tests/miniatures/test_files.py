"""The shipped files: complete, small, and refused when they differ from the build."""

import json
import shutil
from pathlib import Path

import pytest

from pytest_vllm_gates.checkpoints import miniatures

SHIPPED = [name for name in miniatures.names() if (miniatures.CHECKPOINTS / name).is_dir()]
MOST_BYTES = 3_000_000
MOST_BYTES_TOGETHER = 28_000_000


def size_of(name: str) -> int:
    files = (miniatures.CHECKPOINTS / name).rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def test_every_recipe_has_a_checkpoint() -> None:
    assert list(miniatures.names()) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_miniature_is_complete(name: str) -> None:
    folder = miniatures.path(name)
    locked = json.loads((folder / "lock.json").read_text())["files"]
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert files == {*locked, "lock.json"}


@pytest.mark.parametrize("name", SHIPPED)
def test_miniature_is_small(name: str) -> None:
    assert size_of(name) <= MOST_BYTES


def test_miniatures_are_small_together() -> None:
    assert sum(map(size_of, SHIPPED)) <= MOST_BYTES_TOGETHER


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped Qwen3.5 miniature that `path` finds instead of the shipped one."""
    folder = tmp_path / "qwen3.5"
    shutil.copytree(miniatures.CHECKPOINTS / "qwen3.5", folder)
    monkeypatch.setattr(miniatures, "CHECKPOINTS", tmp_path)
    return folder


def test_truncated_weights_are_refused(copy: Path) -> None:
    weights = copy / "model.safetensors"
    size = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(miniatures.MiniatureError) as caught:
        miniatures.path("qwen3.5")
    message = str(caught.value)
    assert f"{weights} has 1000 bytes, expected {size}" in message
    assert message.endswith("python -m pytest_vllm_gates.miniatures build qwen3.5")


def test_changed_byte_is_refused(copy: Path) -> None:
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(miniatures.MiniatureError, match=r"has SHA-256 .*, expected"):
        miniatures.path("qwen3.5")


def test_missing_file_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(miniatures.MiniatureError, match=r"tokenizer\.json is missing"):
        miniatures.path("qwen3.5")


def test_missing_or_broken_lock_is_refused(copy: Path) -> None:
    (copy / "lock.json").write_text("{")
    with pytest.raises(miniatures.MiniatureError, match=r"lock\.json"):
        miniatures.path("qwen3.5")
    (copy / "lock.json").unlink()
    with pytest.raises(miniatures.MiniatureError, match=r"lock\.json"):
        miniatures.path("qwen3.5")


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        miniatures.MiniatureError, match=r"no miniature 'qwen'\nknown ones: .*qwen3\.5"
    ):
        miniatures.path("qwen")
