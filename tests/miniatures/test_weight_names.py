"""Names of tensors in a safetensors file are replaced, and nothing else is."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.miniatures.weight_names import rename

if TYPE_CHECKING:
    from pathlib import Path

HEAD = {
    "__metadata__": {"format": "pt"},
    "tower.one": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "other.tower.two": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
}
DATA = np.arange(3, dtype=np.float32).tobytes()


def written(file: Path) -> Path:
    text = json.dumps(HEAD).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + DATA)
    return file


def read(file: Path) -> tuple[dict[str, object], bytes, int]:
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :], length


def test_names_that_begin_so_are_replaced(tmp_path: Path) -> None:
    file = written(tmp_path / "model.safetensors")
    rename(file, {"tower.": "tower.model."})
    head, data, length = read(file)
    assert [*head] == ["__metadata__", "tower.model.one", "other.tower.two"]
    assert [*head.values()] == [*HEAD.values()]
    assert data == DATA
    assert length % 8 == 0


def test_gemma_3_has_the_names_that_vllm_reads() -> None:
    head, _, _ = read(miniatures.path("gemma-3") / "model.safetensors")
    firsts = {".".join(name.split(".")[:2]) for name in head if name != "__metadata__"}
    assert {"language_model.model", "vision_tower.vision_model"} <= firsts
    assert not any(name.startswith("vision_tower.e") for name in head)
