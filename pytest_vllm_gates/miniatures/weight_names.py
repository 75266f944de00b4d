"""Gives the tensors of a file the names that the published checkpoints have."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

METADATA = "__metadata__"


def rename(file: Path, prefixes: Mapping[str, str]) -> None:
    """Rewrite the head of a safetensors file, with each prefix replaced by another.

    transformers writes its modules' names, which change from release to release; vLLM
    reads the published names. The data stays unchanged.
    """
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + length])
    named = {_renamed(name, prefixes): entry for name, entry in head.items()}
    text = json.dumps(named, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of eight
    write_whole(file, struct.pack("<Q", len(text)) + text + content[8 + length :])


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    if name == METADATA:
        return name
    found = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
    return prefixes[found] + name.removeprefix(found) if found else name
