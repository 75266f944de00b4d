"""Unpacks an archive of goldens and baselines: regular files only, within limits.

An archive is not trusted. Links, devices, absolute names, names with `..`, and more members or
bytes than the limits are refused: nothing is written outside the folder, and inside never more
than the limit.
"""

from __future__ import annotations

import contextlib
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING

from pytest_vllm_gates.bounded import limits, read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError, MalformedError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARCHIVE_BYTES = 256 * limits.MIB
UNPACKED_BYTES = 1024 * limits.MIB
MEMBERS = 50_000
PIECE_BYTES = 2**20
GZIP, ZIP, EMPTY_ZIP = b"\x1f\x8b", b"PK\x03\x04", b"PK\x05\x06"
TAR, TAR_AT = b"ustar", 257
ENCRYPTED = 1
"""The bit of a zip member's flags."""


class _Limited:
    """A file for `tarfile`, which reads as much at once as a member's header declares."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._limit:
            raise tarfile.ReadError(f"a member's header declares {limits.amount(abs(size))}")
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()


@dataclass
class _Budget:
    """The members and bytes that may still be unpacked from an archive."""

    archive: Path
    left: int
    members: int = MEMBERS

    def member(self, name: str) -> None:
        """Count a member; raises `UnreadableError` for one too many."""
        self.members -= 1
        if self.members < 0:
            raise UnreadableError(
                self.archive,
                f"has more than {MEMBERS:,} members, the first beyond them {limits.excerpt(name)}: "
                "put only golden/ into it",
            )

    def spend(self, size: int) -> None:
        """Count bytes; raises `UnreadableError` for too many."""
        self.left -= size
        if self.left < 0:
            limit = bounded_read.most(UNPACKED_BYTES)
            raise UnreadableError(
                self.archive, "unpacked, it " + bounded_read.too_large(limit - self.left, limit)
            )


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz, .tar or .zip into an empty folder.

    Raises `FileError` for another file, for members besides files and folders, and beyond a limit.
    """
    budget = _Budget(archive, bounded_read.most(UNPACKED_BYTES))
    with bounded_read.opened(archive) as file:
        head = file.read(TAR_AT + len(TAR))
        file.seek(0)
        if head.startswith((ZIP, EMPTY_ZIP)):
            members = _zipped(archive, file)
        elif head.startswith(GZIP):
            members = _gzipped(archive, file, budget)
        elif head[TAR_AT:] == TAR:
            members = _tarred(archive, file, budget)
        else:
            raise MalformedError(
                archive, "is not an archive: expected a .tar.gz, a .tar or a .zip of golden/"
            )
        try:
            for name, data in members:
                budget.member(name)
                _write(archive, folder, name, data, budget)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise MalformedError(archive, f"is not a whole archive: {error}") from error
        except (NotImplementedError, RuntimeError, MemoryError) as error:
            raise MalformedError(archive, f"cannot be unpacked: {error}") from error


Member = tuple[str, IO[bytes] | None]
"""A name and its content; None for a folder."""


def _gzipped(archive: Path, file: IO[bytes], budget: _Budget) -> Iterator[Member]:
    """Decompress to a file first, because a tar is read back and forth."""
    import gzip  # noqa: PLC0415 - few runs have a store
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryFile() as plain, gzip.GzipFile(fileobj=file) as packed:
        while piece := packed.read(PIECE_BYTES):
            budget.spend(len(piece))
            plain.write(piece)
        budget.left = bounded_read.most(UNPACKED_BYTES)
        plain.seek(0)
        yield from _tarred(archive, plain, budget)


def _tarred(archive: Path, file: IO[bytes], budget: _Budget) -> Iterator[Member]:
    with tarfile.open(fileobj=_Limited(file, budget.left), mode="r:") as tar:  # type: ignore[call-overload]
        for member in tar:
            tar.members = []  # tarfile would keep every member
            if member.isdir():
                yield member.name, None
            elif member.isreg() and not member.issparse():
                yield member.name, tar.extractfile(member)
            else:
                raise _refused(archive, member.name, "is a link or a device")


def _zipped(archive: Path, file: IO[bytes]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as packed:
        for info in packed.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                yield info.filename, None
            elif kind not in (0, stat.S_IFREG):
                raise _refused(archive, info.filename, "is a link or a device")
            elif info.flag_bits & ENCRYPTED:
                raise _refused(archive, info.filename, "is encrypted")
            else:
                with packed.open(info) as data:
                    yield info.filename, data


def _write(archive: Path, folder: Path, name: str, data: IO[bytes] | None, budget: _Budget) -> None:
    path = folder / _inside(archive, name)
    try:
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            while piece := data.read(PIECE_BYTES):
                budget.spend(len(piece))
                file.write(piece)
    except FileExistsError as error:
        raise _refused(archive, name, "is in it twice") from error
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        why = getattr(error, "strerror", None) or error
        raise _refused(archive, name, f"cannot be written: {why}") from error
    finally:
        if data is not None:
            with contextlib.suppress(Exception):
                data.close()


def _inside(archive: Path, name: str) -> PurePosixPath:
    """Return a member's path inside the folder; raises `MalformedError` for a path outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name:
        raise _refused(archive, name, "is not a path inside the archive")
    return path


def _refused(archive: Path, name: str, why: str) -> MalformedError:
    return MalformedError(
        archive,
        f"the member {limits.excerpt(name)} {why}: only files and folders are unpacked; make it "
        "again: tar -czf golden.tar.gz golden",
    )
