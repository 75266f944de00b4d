"""The folders in which vLLM keeps data for later boots, and ways in which they can be damaged.

vLLM keeps compiled graphs, the kernels in them and its data on model classes below
`VLLM_CACHE_ROOT` (0.27 to 0.32: `vllm/envs.py`, `vllm/compilation/decorators.py`,
`vllm/model_executor/models/registry.py`). Code that PyTorch compiles outside of a graph and
Triton's kernels are below `TORCHINDUCTOR_CACHE_DIR` and `TRITON_CACHE_DIR`, code that came with a
checkpoint below `HF_MODULES_CACHE`. `HF_HOME` stays unchanged: weights are read from it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.lifecycle import read_only_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VARIABLES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "HF_MODULES_CACHE": "modules",
}
CLASSES = "modelinfos"
"""Below `VLLM_CACHE_ROOT`: written in the first seconds of any boot, compiled or not."""


@dataclass(frozen=True)
class Garbled:
    """The damage to the files of a cache."""

    cut: int
    """Files of which only the first half is left."""
    zeroed: int
    """Files that keep their length and contain zeros."""


def variables(folder: Path) -> dict[str, str]:
    """Return the environment of a server that keeps its caches in a folder."""
    return {name: str(folder.absolute() / below) for name, below in VARIABLES.items()}


def files(folder: Path) -> list[Path]:
    """Return the files of the caches in a folder that are not empty, in order."""
    return sorted(path for path in _walk(folder) if path.is_file() and path.stat().st_size)


def compiling(folder: Path) -> bool:
    """Return whether a boot has begun to write what it compiles."""
    return any(CLASSES not in path.parts for path in files(folder))


def garble(folder: Path) -> Garbled:
    """Damage every file as a full disk or a lost write does: cut every second, zero the others.

    With a journal, a file may have its length although its data was never written: it then reads
    as zeros (ext4(5), `data=writeback`). Single bits of code are never changed: no server could
    detect that.
    """
    cut = zeroed = 0
    for number, path in enumerate(files(folder)):
        size = path.stat().st_size
        os.truncate(path, size // 2 if number % 2 else 0)
        if number % 2:
            cut += 1
        else:
            os.truncate(path, size)
            zeroed += 1
    return Garbled(cut, zeroed)


def forbid_writing(folder: Path) -> None:
    """Remove the write permission of a folder and all below it, for all users."""
    for path in [*_walk(folder), folder]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


def allow_writing(folder: Path) -> None:
    """Restore the owner's write permission, so that the folder can be removed."""
    for path in [folder, *_walk(folder)]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def without_override(program: Sequence[str]) -> tuple[str, ...]:
    """Return a command prefix with which a server respects file permissions, even as root."""
    return ("-I", "-S", read_only_program.__file__, *program)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all below a folder, none of it twice; links are not followed."""
    for root, folders, names in os.walk(folder):
        yield from (
            path for name in (*folders, *names) if not (path := Path(root, name)).is_symlink()
        )
