"""The tensors in a checkpoint's files, read from their headers: no tensor is loaded.

A safetensors file begins with the length of its header in eight bytes, and a header in JSON with
each tensor's type, shape and place.
"""

from __future__ import annotations

import math
import os
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import limits, read as bounded_read, syntax
from pytest_vllm_gates.bounded.errors import FileError, MalformedError, UnreadableError
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LONGEST_HEADER = limits.JSON_BYTES
"""Some 130,000 tensors; the largest released files have a tenth of them."""
LENGTH = struct.Struct("<Q")
METADATA = "__metadata__"
MOST_BYTES = 2**63
MOST_SIDES = 64
NOT_WHOLE = "not a safetensors file, or cut short: {}"
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
    """Return the bytes of the model's weights, or None for a folder without such files.

    Layers that only draft are left out: vLLM does not load them unless it drafts.
    """
    files = sorted(folder.glob("*.safetensors"))
    if files:
        tensors = [tensor for file in files for tensor in read(file)]
        return sum(tensor.size for tensor in tensors if not drafts(tensor.name, layers))
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return None
    try:
        total = bounded_read.json_object(index, whole=True)["metadata"]["total_size"]
    except FileError as error:
        raise UserError(f"{index}: not an index of safetensors files: {error.why}") from error
    except (KeyError, TypeError) as error:
        raise UserError(f"{index}: not an index of safetensors files: {error}") from error
    valid = isinstance(total, int | float) and 0 <= total <= MOST_BYTES
    return int(total) if valid else None


def drafts(name: str, layers: int) -> bool:
    """Return whether a tensor belongs to layers beyond the model's own."""
    match = LAYER.search(name)
    return bool(DRAFTER.search(name)) or bool(layers and match and int(match[1]) >= layers)


def read(file: Path) -> Iterator[Tensor]:
    """Yield a file's tensors; raises `UserError` for another kind of file."""
    for name, description in header(file).items():
        if name == METADATA:
            continue
        try:
            start, end = (_integer(offset) for offset in description["data_offsets"])
            shape = [_integer(side) for side in description["shape"]]
            elements = math.prod(shape[:MOST_SIDES])
            yield Tensor(name, str(description["dtype"]), elements, _integer(end - start))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedError(
                file, f"the tensor {excerpt(name)} is not described: {error}"
            ) from error


def header(file: Path) -> dict[str, Any]:
    """Return a file's table of tensors; raises `UserError` for another kind of file."""
    with bounded_read.opened(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        try:
            begin = opened.read(LENGTH.size)
            (length,) = LENGTH.unpack(begin)
            limit = bounded_read.most(LONGEST_HEADER)
            if length > size - LENGTH.size:
                raise MalformedError(file, NOT_WHOLE.format(f"its header has {length} bytes"))
            if length > limit:
                raise UnreadableError(file, "its header " + bounded_read.too_large(length, limit))
            table = syntax.json_value(opened.read(length), unique=True, whole=True)
        except OSError as error:
            raise UnreadableError(file, f"cannot be read: {error.strerror}") from error
        except (struct.error, syntax.BadSyntaxError) as error:
            raise MalformedError(file, NOT_WHOLE.format(error)) from error
    if not isinstance(table, dict):
        raise MalformedError(file, "not a safetensors file: its header is not a table")
    return table


def end_of(table: Mapping[str, Any]) -> int:
    """Return how many bytes of tensors a header describes; raises `ValueError` for a wrong one."""
    try:
        ends = [
            _integer(tensor["data_offsets"][1])
            for name, tensor in table.items()
            if name != METADATA
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(str(error)) from error
    return max(ends, default=0)


def _integer(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST_BYTES:
        raise ValueError(f"expected an integer from 0 to 2**63, got {excerpt(value)}")
    return value
