"""The GPU architectures a compiled library carries kernels for, read from its file.

nvcc puts its code into the ELF section `.nv_fatbin`: containers one after another, one for each
source file, each a header and entries, each entry a header that names its kind (PTX or machine
code) and architecture, however its body is packed. Only headers are read.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from typing import TYPE_CHECKING

from pytest_vllm_gates.environment.types import Kernels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECTION = b".nv_fatbin"
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, -, size of this header, of the body, -, -, -, -, arch
PTX, MACHINE_CODE = 1, 2
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
# Every container of a build names the same architectures, give or take; libtorch has thousands.
ENOUGH = 400


def kernels(library: Path) -> Kernels | None:
    """Return the architectures of a library's kernels; None where it has none or cannot be read."""
    kernel_entries: set[tuple[int, int]] = set()
    with (
        contextlib.suppress(OSError, ValueError, struct.error),
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image,
    ):
        start, end = _section(image)
        kernel_entries.update(_entries(image, start, end))
    if not kernel_entries:
        return None
    return Kernels(
        machine_code=tuple(sorted(arch for kind, arch in kernel_entries if kind == MACHINE_CODE)),
        ptx=tuple(sorted(arch for kind, arch in kernel_entries if kind == PTX)),
    )


def _section(image: mmap.mmap) -> tuple[int, int]:
    """Return where the section begins and ends in a 64-bit little-endian ELF; 0, 0 without it."""
    if image[:6] != b"\x7fELF\x02\x01":
        return 0, 0
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [SECTION_HEADER.unpack_from(image, table + number * size) for number in range(count)]
    names = headers[names_index][4]
    for name, _, _, _, offset, length, *_ in headers:
        if image[names + name : names + name + len(SECTION) + 1] == SECTION + b"\0":
            return offset, offset + length
    return 0, 0


def _entries(image: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield kind and architecture (90 for 9.0) of the entries between two offsets."""
    position = start
    for _ in range(ENOUGH):
        if position + CONTAINER.size > end:
            return
        magic, _, header, size = CONTAINER.unpack_from(image, position)
        if magic != MAGIC:
            return
        entry_start, position = position + header, position + header + size
        while entry_start + ENTRY.size <= position:
            kind, _, head, body, _, _, _, _, arch = ENTRY.unpack_from(image, entry_start)
            if not head:
                break
            yield kind, arch
            entry_start += head + body
        position += -position % 8
