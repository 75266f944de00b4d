"""The lock of a kept server's user; it is released when the user's process ends for any reason."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from typing import TYPE_CHECKING

from pytest_vllm_gates.server.kept import private

if TYPE_CHECKING:
    from pathlib import Path

NAME = "hold"
TRIES_S = 0.5
"""A process that checks the lock takes it for a moment."""
LOOK_S = 0.02
LIMIT_BYTES = 64


class Hold:
    """The lock of one kept server, in its folder.

    Its file contains the idle limit in seconds; the file's time is the server's last use.
    """

    def __init__(self, folder: Path) -> None:
        """The lock is not taken yet."""
        self.path = folder / NAME
        self._handle: int | None = None

    def acquire(self, within_s: float = TRIES_S) -> bool:
        """Take the lock if it is free and the file is not gone; create a missing file."""
        if self._handle is not None:
            return True
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | private.CAREFULLY, 0o600)
        except OSError:
            return False
        deadline = time.monotonic() + within_s
        while not _locked(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(handle)
                return False
            time.sleep(LOOK_S)
        # Its last user may have removed it with the server.
        try:
            is_current = os.path.samestat(os.fstat(handle), self.path.stat())
        except OSError:
            is_current = False
        if not is_current:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        """Release the lock and set the file's time."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.utime(self.path)
            os.close(self._handle)
        self._handle = None

    def held(self) -> bool:
        """Return whether a process has the lock now."""
        if self._handle is not None:
            return True
        try:
            handle = os.open(self.path, os.O_RDONLY | private.CAREFULLY)
        except OSError:
            return False
        try:
            return not _locked(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    @property
    def idle_limit_s(self) -> float:
        """Seconds that the server may be idle; 0 if the file has no finite number of them."""
        try:
            seconds = float(private.read(self.path, LIMIT_BYTES))
        except (OSError, ValueError):
            return 0.0
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0

    @idle_limit_s.setter
    def idle_limit_s(self, seconds: float) -> None:
        # In place: the lock is on this very file. Truncated last: a full disk leaves the old limit.
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | private.CAREFULLY, 0o600)
        try:
            data = f"{seconds}\n".encode()
            os.pwrite(handle, data, 0)
            os.ftruncate(handle, len(data))
        finally:
            os.close(handle)

    def idle_s(self) -> float:
        """Return the seconds since the server was last used."""
        with contextlib.suppress(OSError):
            return max(0.0, time.time() - self.path.stat().st_mtime)
        return 0.0


def _locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
