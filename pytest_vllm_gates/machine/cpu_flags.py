"""The instructions that this machine's CPU has, by the names of Linux."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

CPUINFO = Path("/proc/cpuinfo")
WIDE = "avx512f"
"""Without it torch and vLLM take other kernels for bfloat16, and sums are rounded otherwise."""


def flags(file: Path = CPUINFO) -> frozenset[str]:
    """Return the flags of the first CPU (`avx512f`, `amx_tile`); none where they are not told.

    Source: https://www.kernel.org/doc/html/latest/arch/x86/cpuinfo.html.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    return next(
        (frozenset(value.split()) for name, _, value in lines if name.strip() == "flags"),
        frozenset(),
    )


def named(cpu: str, of_cpu: Collection[str]) -> str:
    """Return a CPU's name, and that it lacks AVX512: virtual machines call unlike CPUs alike."""
    return f"{cpu} without AVX512" if of_cpu and WIDE not in of_cpu else cpu
