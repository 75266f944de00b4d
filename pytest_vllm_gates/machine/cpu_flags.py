"""The instructions that this machine's CPU has, by the names of Linux."""

from __future__ import annotations

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


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
