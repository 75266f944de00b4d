"""Has every call of a write fail in turn: a full disk, a broken one, a signal."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CALLS = (
    "open", "write", "fsync", "fchmod", "close", "replace", "rename", "link", "mkdir", "unlink",
    "rmdir", "ftruncate",
)  # fmt: skip
ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)
MOST_CALLS = 300
"""Of one write; a loop that needs more never ends."""


class Fault:
    """One call that fails, the `number`-th from 1 on; `call` is its name once it has failed."""

    def __init__(self, number: int, error: int) -> None:
        self._left = number
        self._error = error
        self.call = ""

    def __call__(self, name: str, real: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left:
            return real(*arguments, **more)
        self.call = name
        if name == "close":  # Linux closes it all the same: close(2)
            real(*arguments, **more)
        raise OSError(self._error, os.strerror(self._error))

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Count the calls of a block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._counting(name))
            yield

    def _counting(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)
        return lambda *arguments, **more: self(name, real, *arguments, **more)


def after_each_fault(
    write: Callable[[Path], object], folder: Path, prepare: Callable[[Path], object]
) -> Iterator[tuple[Path, str, OSError | None]]:
    """Write with each call failing in turn, and once with none; yield what came of it.

    Yields the folder, the call that failed ('' for none) and the error that was raised. `prepare`
    makes each folder; every error of `ERRORS` is tried.
    """
    for error in ERRORS:
        for number in range(1, MOST_CALLS):
            place = folder / f"{error}-{number}"
            prepare(place)
            fault, raised = Fault(number, error), None
            with fault.within():
                try:
                    write(place)
                except OSError as caught:
                    raised = caught
            yield place, fault.call, raised
            if not fault.call:
                break
        else:
            raise AssertionError(f"more than {MOST_CALLS} calls in one write")


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return every file of a folder with its content, and every folder in it with None."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }
