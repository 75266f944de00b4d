"""Reads a checkpoint's files before anything loads it: its config, and whether it is complete."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.checkpoints import prompt_files, safetensors
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint


@dataclass(frozen=True)
class Model:
    """A checkpoint by its files, without reading the weights."""

    source: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its `config.json`; empty if it cannot be read, and then `problem` has the reason."""
    problem: str = ""
    unseen: str = ""
    """Why its files cannot be read from here, if the server may still read them."""
    weights_problem: str = ""

    @property
    def has_no_weights(self) -> bool:
        """Whether its folder has no file of weights, like a tokenizer's folder."""
        return self.weights_problem.startswith(NO_WEIGHTS)

    @property
    def text(self) -> Mapping[str, Any]:
        """The part of the config about text; the whole config of a text model."""
        for name in ("text_config", "llm_config"):
            part = self.config.get(name)
            if isinstance(part, dict):
                return part
        return self.config

    def integer(self, *names: str) -> int | None:
        """Return the first of these integers in the text part."""
        for name in names:
            value = self.text.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def quantization(self) -> Mapping[str, Any] | None:
        """How its weights are quantised, from either place of the config."""
        for part in (self.config, self.text):
            for name in ("quantization_config", "compression_config"):
                quantization = part.get(name)
                if isinstance(quantization, dict):
                    return quantization
        return None


INDEX = "model.safetensors.index.json"

# vLLM's loaders look for any of these.
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
NO_WEIGHTS = "it has no weights"
POINTER = b"version https://git-lfs"


def read(checkpoint: Checkpoint, *, reads_alike: bool = True) -> Model:
    """Return a checkpoint's facts; unreadable files are recorded in it, not raised.

    `reads_alike`: whether the server looks for it where this process does. With its own mirror or
    token a server may read files that this process cannot.
    """
    source = checkpoint.source
    try:
        config = prompt_files.config(source, checkpoint.revision)
    except (UserError, ValueError) as error:
        if checkpoint.folder is None and not reads_alike:
            return Model(source, unseen=str(error))
        return Model(source, problem=str(error))
    if not isinstance(config, dict):
        return Model(source, problem=f"{source}: its config.json is not a table")
    folder = checkpoint.folder
    return Model(
        source,
        config,
        weights_problem=_weights_problem(folder) if folder else "",
    )


def _weights_problem(folder: Path) -> str:
    """Return the fault of a folder's weights, from names, headers and sizes only."""
    shards = _json(folder / INDEX).get("weight_map")
    if isinstance(shards, dict):
        names = sorted({str(name) for name in shards.values()})
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            return (
                f"{INDEX} lists {len(names)} files of weights and {len(missing)} are missing, "
                f"the first of them {missing[0]}"
            )
    files = [path for pattern in WEIGHTS for path in sorted(folder.glob(pattern))]
    if not files:
        return f"{NO_WEIGHTS}: no {', '.join(WEIGHTS)}"
    return next((problem for path in files if (problem := _broken(path))), "")


def _broken(path: Path) -> str:
    """Return the fault of a file of weights: a pointer instead of the file, or a cut file."""
    size = path.stat().st_size
    try:
        with bounded_read.opened(path) as file:
            begin = file.read(len(POINTER))
    except FileError as error:
        return f"{path.name} {error.why}"
    if begin == POINTER:
        return f"{path.name} is a Git LFS pointer and not the file itself"
    if path.suffix != ".safetensors":
        return ""
    expected_size = _safetensors_size(path)
    if expected_size is None:
        return f"{path.name} is not a safetensors file, or cut off within its header"
    if size < expected_size:
        return f"{path.name} is cut off: {size} bytes of {expected_size}"
    return ""


def _safetensors_size(path: Path) -> int | None:
    """Return a file's bytes according to its header: a length, a table of offsets, the tensors."""
    try:
        table = safetensors.header(path)
        with path.open("rb") as file:
            (length,) = safetensors.LENGTH.unpack(file.read(safetensors.LENGTH.size))
        return safetensors.LENGTH.size + int(length) + safetensors.end_of(table)
    except (UserError, OSError, ValueError, struct.error):
        return None


def _json(path: Path) -> dict[str, Any]:
    try:
        return bounded_read.json_object(path, whole=True)
    except FileError:
        return {}
