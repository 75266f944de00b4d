"""The tensors in a checkpoint's files, read from their headers: no tensor is loaded.

A safetensors file begins with eight bytes with the length of its header, and a header in JSON with
each tensor's type, shape and place.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_HEADER = 2**27
DRAFTER = re.compile(r"(^|\.)(mtp|nextn|eh_proj)(\.|$)")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


@dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint."""

    name: str
    dtype: str
    elements: int
    size: int
    """Bytes."""


def weights_bytes(folder: Path, layers: int) -> int | None:
    """Return the bytes of the model's weights, or None where the folder has no such files.

    Left out are the layers that only draft: vLLM does not load them unless it drafts.
    """
    files = sorted(folder.glob("*.safetensors"))
    if files:
        tensors = [tensor for file in files for tensor in read(file)]
        return sum(tensor.size for tensor in tensors if not drafts(tensor.name, layers))
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return None
    try:
        total = json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{index}: not an index of safetensors files: {error}") from error
    return int(total) if isinstance(total, int | float) else None


def drafts(name: str, layers: int) -> bool:
    """Return whether a tensor belongs to layers beyond the model's own."""
    match = LAYER.search(name)
    return bool(DRAFTER.search(name)) or bool(layers and match and int(match[1]) >= layers)


def read(file: Path) -> Iterator[Tensor]:
    """Yield a file's tensors; raises `UserError` when it is no safetensors file."""
    for name, description in _header(file).items():
        if name == "__metadata__":
            continue
        try:
            start, end = description["data_offsets"]
            elements = 1
            for side in description["shape"]:
                elements *= side
            yield Tensor(name, str(description["dtype"]), elements, end - start)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{file}: the tensor {name!r} is not described: {error}") from error


def _header(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > LONGEST_HEADER:
                raise UserError(f"{file}: no safetensors file (its header would be {length} bytes)")
            header = json.loads(opened.read(length))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except (struct.error, ValueError) as error:
        raise UserError(f"{file}: no safetensors file, or cut short: {error}") from error
    if not isinstance(header, dict):
        raise UserError(f"{file}: no safetensors file: its header is no table")
    return header
