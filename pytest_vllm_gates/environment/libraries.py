"""The compiled libraries of a bundle, with the GPU code that each of them carries.

A library's kernels lie in containers, one for each source file. A container that has no machine
code for a GPU runs by its PTX, which the driver compiles, unless the PTX is newer than the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.environment import fatbin
from pytest_vllm_gates.environment.types import Library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Folders of packages whose libraries run on the GPU: vLLM's own (attention, Marlin, DeepGEMM),
# FlashInfer's ahead-of-time caches, NCCL, and packages that vLLM calls.
PLACES = (
    "vllm", "flashinfer", "flashinfer_jit_cache", "deep_gemm", "flash_attn", "vllm_flash_attn",
    "nvidia/nccl/lib",
)  # fmt: skip
PATTERNS = ("*.so", "*.so.*")
FLASHINFER_BASE, FLASHINFER_CACHE = "FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer"
"""The folder of kernels that FlashInfer compiled: below that variable's folder, else below the home
folder (`FLASHINFER_CACHE_DIR` of `flashinfer/jit/env.py`)."""
MOST_CACHED = 500


def read(folders: Iterable[Path]) -> tuple[Library, ...]:
    """Return the libraries with GPU code in an environment's folders."""
    libraries = []
    for folder in folders:
        for place in PLACES:
            base = folder / place
            files = {file for pattern in PATTERNS for file in base.rglob(pattern)}
            for file in sorted(files):
                containers = fatbin.containers(file)
                if containers:
                    libraries.append(Library(str(file.relative_to(folder)), containers))
    return tuple(libraries)


def compiled_here(environment: Mapping[str, str]) -> tuple[Library, ...]:
    """Return the libraries that FlashInfer compiled on this machine before, with their code."""
    home = environment.get(FLASHINFER_BASE) or environment.get("HOME") or "~"
    cache = Path(home).expanduser() / FLASHINFER_CACHE
    return tuple(
        Library(f"~/{FLASHINFER_CACHE}/{file.relative_to(cache)}", containers)
        for file in sorted(cache.rglob("*.so"))[:MOST_CACHED]
        if (containers := fatbin.containers(file))
    )
