"""Writes files and folders whole or not at all, and finds the cache folder.

A write goes to a hidden file beside the target, which is flushed to the disk and renamed into
place. A failure removes that file and the folders made for it, and raises `WriteError`.
Standard library only: programs that run without installed packages import this module.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.descriptors import writable
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MODE = 0o644
NAME_BYTES = 200
"""Bytes of a target's name that the hidden file's name repeats; a name has at most 255 bytes."""
COPY_BYTES = 2**20
PROBE_BYTES = 4096
READER_S = 5.0
"""Seconds that a full pipe may stay full."""
TRIES = 3
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
OF_THE_DISK = {*NO_SPACE, errno.EROFS, errno.EFBIG, errno.EIO}
"""Error numbers of file systems; network connections never raise them."""


class WriteError(UserError, OSError):
    """A file or folder that could not be written.

    `filename`, `errno` and `strerror` are the system's; the text adds the next command.
    """

    @classmethod
    def of(cls, path: Path, error: OSError) -> WriteError:
        """Return the error for a path, made from the system's error."""
        return cls(error.errno, error.strerror or str(error), str(path))

    def __str__(self) -> str:
        return f"{self.filename} was not written: {self.strerror}\n{self.advice}"

    @property
    def advice(self) -> str:
        """The next step, with a command."""
        folders = Path(self.filename).absolute().parents
        folder = next((each for each in folders if os.path.lexists(each)), folders[0])
        if self.errno in NO_SPACE:
            return f"free some space, or write to another disk: df -h {folder}"
        if self.errno == errno.EFBIG:
            return "raise the limit of this shell's file size: ulimit -f"
        if self.errno == errno.ENAMETOOLONG:
            return "name a shorter path"
        return f"check the folder's permissions and type: ls -ld {folder}"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise system errors of the block as the `WriteError` of a path."""
    try:
        yield
    except OSError as error:
        raise WriteError.of(path, error) from error


def write_whole(
    path: Path, content: str | bytes, *, mode: int = MODE, folders: bool = True
) -> None:
    """Write a file whole; raises `WriteError` and changes nothing on failure.

    Missing folders are made; with `folders` false they are an error.
    """
    data = content.encode() if isinstance(content, str) else content
    with writing(path), _folder(path.parent) if folders else contextlib.nullcontext():
        _put(_aside(path, [data], mode), path)


def copy_whole(source: Path, path: Path, *, mode: int = MODE) -> None:
    """Copy a file of any size to `path`, whole or not at all; raises as `write_whole` does."""
    with writing(path), source.open("rb") as file, _folder_of(path):
        _put(_aside(path, iter(lambda: file.read(COPY_BYTES), b""), mode), path)


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write several files, in their order, or none: a failure restores the previous files."""
    asides: dict[Path, Path] = {}
    before: dict[Path, Path] = {}
    placed: set[Path] = set()
    with contextlib.ExitStack() as folders:
        try:
            for path, content in contents.items():
                data = content.encode() if isinstance(content, str) else content
                with writing(path):
                    folders.enter_context(_folder_of(path))
                    asides[path] = _aside(path, [data], MODE)
            for path, aside in asides.items():
                with writing(path):
                    if os.path.lexists(path):
                        before[path] = _beside(path, secrets.token_hex(4))
                        _keep(path, before[path])
                    aside.replace(path)
                    placed.add(path)
        except BaseException:
            for path in placed - before.keys():
                _remove(path)
            for path, old in before.items():
                _restore(old, path)
            for aside in asides.values():
                _remove(aside)
            raise
        for old in before.values():
            _remove(old)


def append(path: Path, content: str) -> None:
    """Append a text to a file, device or pipe; raises `WriteError` and leaves a file unchanged.

    Waits at most `READER_S` for the reader of a pipe.
    """
    is_new = not os.path.lexists(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with writing(path):
        handle = os.open(path, flags, MODE)
        try:
            status = os.fstat(handle)
            try:
                _write(handle, content.encode("utf-8", "replace"))
            except BaseException:
                if stat.S_ISREG(status.st_mode):
                    os.ftruncate(handle, status.st_size)
                if is_new:
                    _remove(path)
                raise
        finally:
            os.close(handle)


@contextlib.contextmanager
def folder_aside(parent: Path) -> Iterator[Path]:
    """Give an empty hidden folder in `parent`, to be filled and renamed; leftovers are removed.

    If the block fails, the folders made for it are removed. Raises `OSError`.
    """
    with _folder(parent):
        aside = Path(tempfile.mkdtemp(dir=parent, prefix=".aside."))
        try:
            yield aside
        finally:
            _remove_tree(aside)


def probe(folder: Path) -> None:
    """Make a folder; raises `WriteError` if a file cannot be written into it."""
    path = folder / "probe"
    with writing(path), _folder(folder):
        _remove(_aside(path, [b"\0" * PROBE_BYTES], MODE))


def _folder_of(path: Path) -> contextlib.AbstractContextManager[None]:
    return _folder(path.parent)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Make a folder; if the block fails, the folders made for it are removed where empty."""
    missing = [*takewhile(lambda each: not os.path.lexists(each), (folder, *folder.parents))]
    made = []
    try:
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process makes it, too
                each.mkdir()
                made.append(each)
        yield
    except BaseException:
        for each in reversed(made):
            _tried(each.rmdir)
        raise


def _aside(path: Path, pieces: Iterable[bytes], mode: int) -> Path:
    """Write a hidden file beside `path`, flushed to the disk; return its path."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_beside(path, "").name)
    aside = Path(name)
    try:
        try:
            for piece in pieces:
                _write(handle, piece)
            with contextlib.suppress(OSError):  # some file systems have no modes
                os.fchmod(handle, mode)
            try:
                os.fsync(handle)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
        finally:
            os.close(handle)
    except BaseException:
        _remove(aside)
        raise
    return aside


def _beside(path: Path, ending: str) -> Path:
    """Return a hidden name in the folder of `path`, short enough for any length of name."""
    name = os.fsdecode(os.fsencode(path.name)[:NAME_BYTES])
    return path.with_name(f".{name}.{ending}")


def _write(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(handle, rest) :]
        except BlockingIOError:
            if not writable(handle, READER_S):
                raise


def _put(aside: Path, path: Path) -> None:
    try:
        aside.replace(path)
    except BaseException:
        _remove(aside)
        raise


def _keep(path: Path, old: Path) -> None:
    """Give a file a second name, or rename it where the file system has no links."""
    if path.is_dir() and not path.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    try:
        os.link(path, old, follow_symlinks=False)
    except OSError:
        path.rename(old)


def _restore(old: Path, path: Path) -> None:
    if os.path.lexists(old):
        _tried(lambda: old.replace(path))
    _remove(old)  # rename(2) does nothing for two names of one file


def _remove(path: Path) -> None:
    _tried(path.unlink)


def _remove_tree(folder: Path) -> None:
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return


def _tried(action: Callable[[], object]) -> None:
    """Run a cleanup, and retry it a few times: a signal may have interrupted it."""
    for _ in range(TRIES):
        try:
            action()
        except FileNotFoundError:
            return
        except OSError:
            continue
        return


CACHE_VARIABLE = "VLLM_GATES_CACHE"


def default_cache() -> Path:
    """Return the folder for environments: `$VLLM_GATES_CACHE`, else the user's cache."""
    from platformdirs import user_cache_path  # noqa: PLC0415 - not of the standard library

    configured = os.environ.get(CACHE_VARIABLE)
    return (
        Path(configured).expanduser().resolve()
        if configured
        else user_cache_path("pytest-vllm-gates")
    )
