"""A checkpoint's files, read before anything loads them."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import files as checkpoint_files, miniatures, prompt_files
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.checkpoints.files import Model


def tensors(*, cut: int = 0) -> bytes:
    """Return a safetensors file of one tensor of 16 bytes, without its last `cut`."""
    header = json.dumps(
        {"__metadata__": {"format": "pt"},
         "w": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}}
    ).encode()  # fmt: skip
    content = struct.pack("<Q", len(header)) + header + b"\0" * 16
    return content[: len(content) - cut]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "model.safetensors").write_bytes(tensors())
    return tmp_path


def read(folder: Path) -> Model:
    return checkpoint_files.read(Checkpoint("own", str(folder)))


def test_complete_checkpoint_has_no_problem(weights: Path) -> None:
    model = read(weights)
    assert (model.problem, model.weights_problem) == ("", "")
    assert model.config == {"model_type": "qwen3"}
    assert read(miniatures.path("qwen3.5")).weights_problem == ""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (tensors(cut=4), "model.safetensors is cut off: "),
        (
            tensors(cut=40),
            "model.safetensors is not a safetensors file, or cut off within its header",
        ),
        (b"\1", "model.safetensors is not a safetensors file"),
        (struct.pack("<Q", 2**60), "model.safetensors is not a safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "model.safetensors is not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "model.safetensors is a Git LFS pointer"),
    ],
)
def test_broken_weights_are_found_from_the_header(
    weights: Path, content: bytes, problem: str
) -> None:
    (weights / "model.safetensors").write_bytes(content)
    assert read(weights).weights_problem.startswith(problem)


def test_missing_weights_are_named(weights: Path) -> None:
    index: dict[str, Any] = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(index))
    (weights / "model.safetensors").rename(weights / "model-1.safetensors")
    assert read(weights).weights_problem == (
        "model.safetensors.index.json lists 2 files of weights and 1 are missing, the first of "
        "them model-2.safetensors"
    )
    (weights / "model-1.safetensors").unlink()
    (weights / "model.safetensors.index.json").unlink()
    assert read(weights).weights_problem.startswith("it has no weights")


@pytest.mark.parametrize("text", ["not JSON", "[]"])
def test_invalid_config_is_a_problem(weights: Path, text: str) -> None:
    (weights / "config.json").write_text(text)
    assert "config.json" in read(weights).problem


def test_text_part_of_a_nested_config_is_used(weights: Path) -> None:
    nested = {"text_config": {"num_attention_heads": 8, "x": True}, "num_attention_heads": 1}
    (weights / "config.json").write_text(json.dumps(nested))
    model = read(weights)
    assert model.integer("absent", "num_attention_heads") == 8
    assert model.integer("x") is None


def test_checkpoint_reachable_elsewhere_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("401 Client Error\nlog in with `hf auth login`")

    monkeypatch.setattr(prompt_files, "config", refuse)
    gated = Checkpoint("org--x", "org/x")
    assert checkpoint_files.read(gated).problem.startswith("401")
    elsewhere = checkpoint_files.read(gated, reads_alike=False)
    assert (elsewhere.problem, elsewhere.unseen.partition("\n")[0]) == ("", "401 Client Error")
