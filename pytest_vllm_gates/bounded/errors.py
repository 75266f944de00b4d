"""The errors of files from outside. Each is a `UserError`, with the path first in its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


class FileError(UserError):
    """A file that is refused. `why` is the reason without the path."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.why = why


class UnreadableError(FileError):
    """A file that cannot be opened, is not a regular file, or is larger than its limit."""


class MalformedError(FileError):
    """A file with invalid content."""
