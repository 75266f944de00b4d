"""Finds the process that listens on a port, from Linux' /proc."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLE = Path("/proc/net/tcp")
# Addresses are in the host's byte order there; proc(5).
LOOPBACK = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"
ANY = "00000000"
LISTEN = "0A"
LOCAL, STATE, INODE = 1, 3, 9


def listens(port: int, pids: Iterable[int]) -> bool:
    """Return whether one of these processes has a listening socket on the loopback's port."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    return bool(wanted) and any(not wanted.isdisjoint(_open_files(pid)) for pid in pids)


def _inodes(port: int) -> Iterator[str]:
    addresses = {f"{address}:{port:04X}" for address in (LOOPBACK, ANY)}
    try:
        lines = TABLE.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for fields in map(str.split, lines):
        if fields[LOCAL] in addresses and fields[STATE] == LISTEN:
            yield fields[INODE]


def _open_files(pid: int) -> Iterator[str]:
    """Yield the targets of the process's file descriptors that can be read."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - many thousands
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
        except OSError:
            continue
