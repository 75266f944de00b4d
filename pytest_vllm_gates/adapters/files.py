"""The folders of LoRA adapters: their rank, and copies that do not fit a server.

PEFT's format: `adapter_config.json` with `r` and `lora_alpha`, and `adapter_model.safetensors` with
tensors `….lora_A.weight` of shape (rank, inputs) and `….lora_B.weight` of shape (outputs, rank)
(https://huggingface.co/docs/peft/developer_guides/checkpoint).
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.adapters.types import AdapterFiles
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.checkpoints import adapters as shipped, miniatures, safetensors
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of `--max-lora-rank` (vLLM 0.32.0, vllm/config/lora.py, MaxLoRARanks)."""
UNKNOWN_LAYERS = "layers_of_another_model"
LEAST_RANK = 8
DEFAULT_RANK = 16
"""vLLM's own `--max-lora-rank` (0.32.0, vllm/config/lora.py)."""
SMALLER, LARGER = "a smaller base model", "a larger base model"


def of(checkpoint: Checkpoint, named: Mapping[str, str], beside: Path) -> tuple[AdapterFiles, ...]:
    """Return the adapters that a lane names, else those that ship with a miniature.

    A relative path in `named` starts at `beside`, the lane's folder. Raises `UserError` for a
    folder without an adapter, and for a shipped adapter that is not whole.
    """
    if named:
        return tuple(read(name, beside / path) for name, path in named.items())
    folder = checkpoint.folder
    if folder is None or folder.parent != miniatures.CHECKPOINTS:
        return ()
    begins = {one.name: one.begins for one in shipped.recipes(folder.name)}
    try:
        paths = shipped.paths(folder.name)
    except miniatures.MiniatureError as error:
        raise UserError(str(error)) from error
    return tuple(read(name, path, begins[name]) for name, path in paths.items())


def read(name: str, folder: Path, begins: str = "") -> AdapterFiles:
    """Return an adapter by its folder; raises `UserError` for a folder without an adapter."""
    file = folder / CONFIG
    if not file.is_file():
        raise UserError(
            f"adapter {name}: {file} does not exist\n"
            "name a folder with adapter_config.json and adapter_model.safetensors"
        )
    rank = bounded_read.json_object(file, whole=True).get("r")
    if not isinstance(rank, int) or not 0 < rank <= RANKS[-1]:
        raise UserError(f"adapter {name}: {file}: r is {rank!r}, expected 1 to {RANKS[-1]}")
    return AdapterFiles(name, folder, rank, begins)


def flags(adapters: Sequence[AdapterFiles]) -> dict[str, Any]:
    """Return vLLM's flags that serve these adapters; empty without adapters."""
    if not adapters:
        return {}
    highest = max(LEAST_RANK, *(adapter.rank for adapter in adapters))
    return {
        "max_lora_rank": next(rank for rank in RANKS if rank >= highest),
        "lora_modules": [f"{adapter.name}={adapter.folder}" for adapter in adapters],
    }


def served_rank(serve: Mapping[str, Any]) -> int:
    """Return the highest rank that a server with these flags accepts."""
    return int(serve.get("max_lora_rank", DEFAULT_RANK))


def names_in(serve: Mapping[str, Any]) -> set[str]:
    """Return the names of the adapters that the flag `lora_modules` gives a server.

    Each is `NAME=PATH` or a JSON object with `name` and `path`, as in vLLM.
    """
    given = serve.get("lora_modules") or ()
    names = set()
    for module in [given] if isinstance(given, str | dict) else given:
        if isinstance(module, dict):
            names.add(str(module.get("name") or ""))
        elif not str(module).startswith("{"):
            names.add(str(module).partition("=")[0])
    return names - {""}


def write_unfit(adapter: AdapterFiles, folder: Path, served_rank: int) -> dict[str, Path]:
    """Write copies of an adapter that a server must refuse, and return them by their fault.

    One has a rank above `served_rank`, two fit base models with layers of half and twice the
    size, one names layers that no model has, and one has no weights.
    """
    config = bounded_read.json_object(adapter.folder / CONFIG, whole=True)
    shapes = _shapes(adapter.folder / WEIGHTS)
    rank = 2 * served_rank
    made: dict[str, Path] = {}
    elsewhere = {name.replace(".layers.", f".{UNKNOWN_LAYERS}."): shapes[name] for name in shapes}
    for what, its_rank, its_shapes in (
        ("a rank that is too high", rank, _resized(shapes, rank)),
        (SMALLER, adapter.rank, _resized(shapes, adapter.rank, 0.5)),
        (LARGER, adapter.rank, _resized(shapes, adapter.rank, 2)),
        ("unknown layers", adapter.rank, elsewhere),
    ):
        made[what] = folder / what.replace(" ", "-")
        _write(made[what], {**config, "r": its_rank}, its_shapes)
    made["no weights"] = folder / "no-weights"
    write_whole(made["no weights"] / CONFIG, json.dumps(config))
    return made


def _shapes(file: Path) -> dict[str, tuple[int, int]]:
    """Return the shapes of an adapter's tensors by name; raises `UserError` for other files."""
    table = safetensors.header(file)
    try:
        shapes = {name: table[name]["shape"] for name in table if ".lora_" in name}
        return {name: (int(rows), int(columns)) for name, (rows, columns) in shapes.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file}: a tensor's shape is not a pair of numbers: {error}") from error


def _resized(
    shapes: Mapping[str, tuple[int, int]], rank: int, scale: float = 1
) -> dict[str, tuple[int, int]]:
    """Return the shapes with another rank, and their layers scaled by a factor."""
    return {
        name: (rank, int(columns * scale)) if ".lora_A" in name else (int(rows * scale), rank)
        for name, (rows, columns) in shapes.items()
    }


def _write(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, int]]) -> None:
    """Write an adapter of zeros in bfloat16."""
    header: dict[str, Any] = {}
    end = 0
    for name, (rows, columns) in shapes.items():
        begin, end = end, end + 2 * rows * columns
        header[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write_whole(folder / WEIGHTS, struct.pack("<Q", len(text)) + text + bytes(end))
    write_whole(folder / CONFIG, json.dumps(config))
