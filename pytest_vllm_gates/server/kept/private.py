"""Reads and writes the files of kept servers: regular, bounded, private to this user.

Standard library only: the keeper, a separate program, imports it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from typing import TYPE_CHECKING

from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 16 * 2**20
"""The largest record, with all files of a checkpoint, has a hundredth of that."""
# A link is not followed, and a FIFO without a writer does not block.
CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def problem(status: os.stat_result) -> str:
    """Return why a file or folder is not private to its user; '' if it is."""
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if status.st_uid != os.geteuid():
        return f"belongs to {_user(status.st_uid)}"
    if status.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def read(path: Path, limit: int = MOST_BYTES) -> str:
    """Return the text of a file; raises `OSError` unless it is regular, private and small."""
    handle = os.open(path, os.O_RDONLY | CAREFULLY)
    try:
        status = os.fstat(handle)
        if why := "is not a file" if not stat.S_ISREG(status.st_mode) else problem(status):
            raise PermissionError(f"{path} {why}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise OSError(f"{path} has more than {limit} bytes")
    return data.decode("utf-8", "replace")


def is_file(path: Path) -> bool:
    """Return whether there is a regular file, not a link, that belongs to this user."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def write(path: Path, text: str) -> None:
    """Write a file that only its user can read, whole or not at all; raises `WriteError`.

    Its folder is not created: a missing folder means that the server is to end.
    """
    write_whole(path, text, mode=0o600, folders=False)
    with contextlib.suppress(OSError):  # left by an earlier version that was killed
        path.with_name(f"{path.name}.new").unlink()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
