"""Headers of safetensors files, complete and broken."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.checkpoints.safetensors import drafts, read, weights_bytes
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, header: Any) -> Path:
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded)
    return path


def tensor(size: int) -> dict[str, Any]:
    return {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}


def test_the_bytes_of_all_shards_are_added(tmp_path: Path) -> None:
    write(tmp_path / "a-1.safetensors", {"__metadata__": {}, "model.layers.0.w": tensor(64)})
    write(tmp_path / "a-2.safetensors", {"model.layers.1.w": tensor(32)})
    assert weights_bytes(tmp_path, 2) == 96


def test_layers_that_only_draft_are_left_out(tmp_path: Path) -> None:
    write(
        tmp_path / "model.safetensors",
        {"model.layers.1.w": tensor(64), "model.layers.2.w": tensor(32), "mtp.fc.w": tensor(32)},
    )
    assert weights_bytes(tmp_path, 2) == 64
    assert drafts("model.layers.61.eh_proj.weight", 61)
    assert not drafts("model.visual.blocks.99.w", 2)


def test_an_index_is_enough(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 123}}), encoding="utf-8")
    assert weights_bytes(tmp_path, 2) == 123
    index.write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="not an index"):
        weights_bytes(tmp_path, 2)


def test_folder_without_weights_has_no_size(tmp_path: Path) -> None:
    assert weights_bytes(tmp_path, 2) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234",
        struct.pack("<Q", 2**60),
        struct.pack("<Q", 10) + b"{",
        b"\x02" + bytes(7) + b"[]",
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors: not a safetensors file"):
        weights_bytes(tmp_path, 2)


def test_undescribed_tensor_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"w": {"dtype": "BF16"}})
    with pytest.raises(UserError, match="the tensor 'w' is not described"):
        list(read(path))
