"""The GPU architectures a compiled library carries kernels for, read from its file.

nvcc puts its code into the ELF section `.nv_fatbin`: containers one after another, one for each
source file, each a header and entries, each entry a header that names its kind (PTX or machine
code), architecture and version, however its body is packed: for PTX the version is that of its
language (8.8 is CUDA 12.9). Whether code is for one architecture alone (`sm_90a`) is in the body:
in PTX after `.target`, in machine code in the flags of its ELF header. If a body is packed by LZ4
(CUDA 12) or zstd (CUDA 13: libnccl.so.2 of nvidia-nccl-cu13 2.32.3, libcurand.so.10 of
nvidia-curand 10.4.5), only its head is unpacked.
Layout: headers of .nv_fatbin as `cuobjdump --list-elf --list-ptx` lists them; flags of a cubin:
LLVM, `llvm/BinaryFormat/ELF.h`, EF_CUDA_ACCELERATORS_V1, EF_CUDA_ACCELERATORS; the flag of packed
bodies: `FATBIN_FLAG_COMPRESS` of github.com/n-eiling/cuda-fatbin-decompression.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import struct
from typing import TYPE_CHECKING

from pytest_vllm_gates.environment import packed_code
from pytest_vllm_gates.environment.types import Code, Kernels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECTION = b".nv_fatbin"
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
# kind, -, size of this header, of the body, -, -, minor and major version, architecture
ENTRY = struct.Struct("<HHIQIIHHI")
PTX, MACHINE_CODE = 1, 2
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
# Every container of a build names the same architectures, give or take; libtorch has thousands.
ENOUGH = 400
ALL = 20_000
BODY_HEAD = 512
FIRST_SPECIFIC = 90
"""No architecture before 9.0 has code for itself alone (CUDA C++ Programming Guide, "Feature set
compiler targets")."""
PACKED_HEAD = 4096
"""Bytes of a packed body that are enough to contain the head."""
FLAGS_AT, LZ4_FLAG = 40, 0x2000
"""The offset of the flags in an entry's header, and the flag of a body packed by LZ4."""
TARGET = re.compile(rb"\.target\s+sm_(\d+)([af]?)")
ELF_FLAGS = 0x30
ACCELERATED, ACCELERATED_OLD = 0x8, 0x800
"""The flag of architecture-specific code, in cubins from ABI version 8 on and before."""
ABI_VERSION, NEW_ABI = 8, 8


def containers(library: Path) -> frozenset[frozenset[Code]]:
    """Return the different sets of code that a library's containers have; empty without any."""
    found: set[frozenset[Code]] = set()
    with (
        contextlib.suppress(OSError, ValueError, struct.error),
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image,
    ):
        start, end = _section(image)
        current: set[Code] = set()
        for new, code in _code(image, start, end, ALL):
            if new and current:
                found.add(frozenset(current))
                current = set()
            current.add(code)
        if current:
            found.add(frozenset(current))
    return frozenset(found)


def kernels(library: Path) -> Kernels | None:
    """Return the architectures of a library's kernels; None if it has none or cannot be read."""
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
    for _, code in _code(image, start, end, ENOUGH):
        yield (PTX if code.ptx else MACHINE_CODE), code.arch


def _code(image: mmap.mmap, start: int, end: int, most: int) -> Iterator[tuple[bool, Code]]:
    """Yield the code between two offsets, and whether a container begins with it."""
    position = start
    for _ in range(most):
        if position + CONTAINER.size > end:
            return
        magic, _, header, size = CONTAINER.unpack_from(image, position)
        if magic != MAGIC:
            return
        first = True
        entry_start, position = position + header, position + header + size
        while entry_start + ENTRY.size <= position:
            kind, _, head, body, _, _, minor, major, arch = ENTRY.unpack_from(image, entry_start)
            if not head:
                break
            if kind in (PTX, MACHINE_CODE):
                at = entry_start + head
                specific = arch >= FIRST_SPECIFIC
                suffix = _suffix(_head(image, entry_start, at, body), kind) if specific else ""
                version = (major, minor) if kind == PTX else (0, 0)
                yield first, Code(arch, kind == PTX, version, suffix)
                first = False
            entry_start += head + body
        position += -position % 8


def _head(image: mmap.mmap, entry: int, at: int, size: int) -> bytes:
    """Return the first bytes of an entry's body, unpacked if it is packed."""
    if image[at : at + len(packed_code.ZSTD)] == packed_code.ZSTD:
        return packed_code.zstd_head(image[at : at + min(size, packed_code.ZSTD_MOST)], BODY_HEAD)
    plain = image[at : at + min(size, BODY_HEAD)]
    if at - entry < FLAGS_AT + 8:
        return plain
    (flags,) = struct.unpack_from("<Q", image, entry + FLAGS_AT)
    if not flags & LZ4_FLAG:
        return plain
    return packed_code.lz4_head(image[at : at + min(size, PACKED_HEAD)], BODY_HEAD)


def _suffix(body: bytes, kind: int) -> str:
    """Return `a` or `f` for architecture-specific code; empty if the body has no such mark."""
    if kind == PTX:
        match = TARGET.search(body)
        return match[2].decode() if match else ""
    if body[:4] != b"\x7fELF" or len(body) < ELF_FLAGS + 4:
        return ""
    (flags,) = struct.unpack_from("<I", body, ELF_FLAGS)
    flag = ACCELERATED if body[ABI_VERSION] >= NEW_ABI else ACCELERATED_OLD
    return "a" if flags & flag else ""
