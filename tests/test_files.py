"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.files import WriteError, append, write_together, write_whole


def test_text_is_written_unchanged_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    write_whole(path, "one\r\ntwo\n☃")
    assert path.read_bytes() == "one\r\ntwo\n☃".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failed_write_leaves_only_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise error

    owner: object = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, fail)
    with pytest.raises(type(error)):
        write_whole(path, "new and longer")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unencodable_text_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_several_files_are_written_together(tmp_path: Path) -> None:
    file, two = tmp_path / "lanes" / "a.txt", tmp_path / "lanes" / "a.toml"
    write_together({file: "1", two: "2"})
    assert (file.read_text(), two.read_text()) == ("1", "2")
    write_together({file: "3", two: "4"})
    assert sorted(path.name for path in file.parent.iterdir()) == ["a.toml", "a.txt"]
    assert (file.read_text(), two.read_text()) == ("3", "4")


def test_several_files_are_all_written_or_none(tmp_path: Path) -> None:
    old, new, last = tmp_path / "old", tmp_path / "new", tmp_path / "last"
    old.write_text("before")
    last.mkdir()  # a file cannot take the place of a folder
    with pytest.raises(OSError, match="last"):
        write_together({old: "after", new: "new", last: "last"})
    assert old.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "old"]


def test_failure_names_the_file_the_cause_and_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    path = tmp_path / "out" / "verdict.json"
    with pytest.raises(WriteError) as error:
        write_whole(path, "text")
    assert str(error.value) == (
        f"{path} was not written: Not a directory\n"
        f"check the folder's permissions and type: ls -ld {tmp_path / 'out'}"
    )
    assert (error.value.errno, error.value.filename) == (errno.ENOTDIR, str(path))
    assert isinstance(error.value, OSError)
    full = WriteError.of(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(full).endswith(f"df -h {tmp_path / 'out'}")


def test_longest_name_is_written(tmp_path: Path) -> None:
    """The file beside it had a name that was longer still."""
    path = tmp_path / ("ü" * 127)
    write_whole(path, "text")
    write_together({path: "other"})
    assert path.read_text() == "other"
    with pytest.raises(WriteError, match=r"name too long\nname a shorter path"):
        write_whole(tmp_path / ("x" * 256), "text")
    assert list(tmp_path.iterdir()) == [path]


def test_mode_is_the_requested_one(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_whole(path, b"\xff", mode=0o600)
    assert path.read_bytes() == b"\xff"
    assert path.stat().st_mode & 0o777 == 0o600


def test_disk_without_flushing_or_modes_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    for name in ("fsync", "fchmod"):
        monkeypatch.setattr(os, name, refuse)
    write_whole(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"


def test_addition_goes_to_files_devices_and_pipes(tmp_path: Path) -> None:
    append(tmp_path / "file", "a\ud800")
    append(tmp_path / "file", "b")
    assert (tmp_path / "file").read_text() == "a?b"
    append(Path("/dev/null"), "text")
    with pytest.raises(WriteError, match="/dev/full was not written: No space left on device"):
        append(Path("/dev/full"), "text")
    with pytest.raises(WriteError, match="No such file or directory"):
        append(tmp_path / "nowhere" / "file", "text")
    assert not (tmp_path / "nowhere").exists()


def test_pipe_that_nobody_reads_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "READER_S", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(WriteError, match="No such device or address"):
        append(fifo, "text")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    append(fifo, "text")
    assert os.read(reader, 10) == b"text"
    with pytest.raises(WriteError, match="temporarily unavailable"):
        append(fifo, "x" * 10**6)
    os.close(reader)
