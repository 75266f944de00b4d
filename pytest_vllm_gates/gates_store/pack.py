"""Packs a file or a folder into an archive; the same content gives the same bytes."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sqlite3
import tarfile
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import limits, read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store.archive import ARCHIVE_BYTES, MEMBERS, UNPACKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATABASE = b"SQLite format 3\0"
"""The beginning of a history's file: https://www.sqlite.org/fileformat.html#magic_header_string."""
MODE = 0o644
LEVEL = 6


def packed(source: Path) -> bytes:
    """Return a .tar.gz of a file, or of the files in a folder by their paths in it.

    Owners, dates and modes are left out. Raises `UserError` for links and devices, which are not
    unpacked either, and beyond the limits.
    """
    plain = io.BytesIO()
    left = bounded_read.most(UNPACKED_BYTES)
    count = 0
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in _files(source):
            try:
                data = _content(path)
            except FileError as error:
                raise UserError(f"{source}: {error}") from error
            left -= len(data)
            count += 1
            if left < 0 or count > MEMBERS:
                raise UserError(
                    f"{source} has more than {limits.amount(bounded_read.most(UNPACKED_BYTES))} "
                    f"or {MEMBERS:,} files\npush a smaller folder"
                )
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), MODE
            tar.addfile(info, io.BytesIO(data))
    archive = gzip.compress(plain.getvalue(), LEVEL, mtime=0)
    if len(archive) > bounded_read.most(ARCHIVE_BYTES):
        raise UserError(
            f"{source}, packed, "
            + bounded_read.too_large(len(archive), bounded_read.most(ARCHIVE_BYTES))
        )
    return archive


def _content(path: Path) -> bytes:
    """Return a file's bytes; for a database, a consistent snapshot."""
    data = bounded_read.data(path, UNPACKED_BYTES)
    if not data.startswith(DATABASE):
        return data
    try:
        with (
            contextlib.closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ) as file,
            contextlib.closing(sqlite3.connect(":memory:")) as copy,
        ):
            file.backup(copy)
            return copy.serialize()
    except sqlite3.Error as error:
        raise UserError(f"{path}: a database that cannot be read: {error}") from error


def _files(source: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and paths, in an order that is always the same."""
    if source.is_file():
        yield source.name, source
        return
    if not source.is_dir():
        raise UserError(f"{source}: no such file or folder\nname a file or folder to push")
    empty = True
    for folder, folders, files in os.walk(source):
        folders.sort()
        for name in sorted(files):
            path = source.__class__(folder, name)
            if path.is_symlink():
                raise UserError(f"{path} is a link, and a store takes only files")
            empty = False
            yield path.relative_to(source).as_posix(), path
    if empty:
        raise UserError(f"{source} has no files\nnothing was pushed")
