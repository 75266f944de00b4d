"""The generation and the instructions of this machine's CPU, by the names of Linux.

Source: https://www.kernel.org/doc/html/latest/arch/x86/cpuinfo.html.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

CPUINFO = Path("/proc/cpuinfo")
WIDE = "avx512f"
"""Without it torch and vLLM take other kernels for bfloat16, and sums are rounded differently."""


def flags(file: Path = CPUINFO) -> frozenset[str]:
    """Return the flags of the first CPU (`avx512f`, `amx_tile`); empty where none are listed."""
    return frozenset(_fields(file).get("flags", "").split())


def generation(file: Path = CPUINFO) -> str:
    """Return the first CPU's generation, `family 26 model 2`; empty where Linux lists none.

    Virtual machines give CPUs of different generations one name (`AMD EPYC`). oneDNN takes its
    kernels by the generation, and these round their sums differently.
    """
    fields = _fields(file)
    if "cpu family" not in fields or "model" not in fields:
        return ""
    return f"family {fields['cpu family']} model {fields['model']}"


def named(cpu: str, of_generation: str, of_cpu: Collection[str]) -> str:
    """Return a CPU's name with its generation, and with what it lacks if it lacks AVX512."""
    lacks = "without AVX512" if of_cpu and WIDE not in of_cpu else ""
    return " ".join(part for part in (cpu, of_generation, lacks) if part)


def _fields(file: Path) -> dict[str, str]:
    """Return the first CPU's fields by name; empty where the file cannot be read."""
    try:
        first, _, _ = file.read_text(encoding="utf-8").partition("\n\n")
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
