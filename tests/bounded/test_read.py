"""Files from outside are read within limits, and only regular files are read."""

from __future__ import annotations

import gzip
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.bounded import limits, read
from pytest_vllm_gates.bounded.errors import FileError, MalformedError, UnreadableError
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (make_fifo, "it is a pipe (FIFO)"),
        (link_to_fifo, "it is a pipe (FIFO)"),
        (make_socket, "it is a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
        (lambda path: path.symlink_to("/dev/tty"), "cannot be read"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path.name), "cannot be read"),
        (lambda path: None, "No such file"),  # noqa: ARG005
    ],
)
def test_only_regular_files_are_opened_and_at_once(
    tmp_path: Path, make: Callable[[Path], object], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("x")
    make(path)
    begun = time.monotonic()
    with pytest.raises(UnreadableError) as raised:
        read.data(path, 10)
    assert str(raised.value).startswith("x: ")
    assert kind in str(raised.value)
    assert time.monotonic() - begun < 1


def test_pipe_that_takes_a_files_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_text("x")
    status = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda _: status)
    with pytest.raises(UnreadableError, match="it is a pipe"):
        read.data(path, 10)


def test_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to("a")
    assert read.data(tmp_path / "b", 3) == b"abc"


def test_name_with_a_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="cannot be read"):
        read.data(tmp_path / "a\0b", 3)


def test_file_beyond_its_limit_is_refused_with_the_way_to_raise_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abcd")
    with pytest.raises(UnreadableError) as raised:
        read.data(path, 3)
    assert str(raised.value) == (
        f"{path}: has 4 bytes, and at most 3 bytes are read\n"
        "raise the limit if the file is meant to be so large: export VLLM_GATES_MAX_FILE_MIB=2"
    )


def test_sparse_file_of_a_terabyte_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UnreadableError, match=r"has 1\.049e\+06 MiB, and at most 16 MiB"):
        read.json(path)


def test_file_without_a_size_is_read_to_its_limit() -> None:
    # Its size is 0, whatever its content.
    with pytest.raises(UnreadableError, match="at most 100 bytes"):
        read.data(Path("/proc/self/smaps"), 100)


def test_variable_sets_every_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a" * 2000)
    monkeypatch.setenv(limits.VARIABLE, "0.001")
    with pytest.raises(UnreadableError, match=r"has 1\.953 KiB, and at most 1\.023 KiB"):
        read.data(path, 5000)
    monkeypatch.setenv(limits.VARIABLE, "1")
    assert len(read.data(path, 10)) == 2000


@pytest.mark.parametrize("value", ["much", "-1", "0", "nan", "inf", "1e308"])
def test_variable_with_an_invalid_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(limits.VARIABLE, value)
    (tmp_path / "x").touch()
    with pytest.raises(UserError, match="expected a number of MiB above 0"):
        read.data(tmp_path / "x", 10)


def test_text_that_is_not_utf8_is_refused_with_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes("aé".encode() + b"\xff")
    with pytest.raises(MalformedError) as raised:
        read.text(path)
    assert str(raised.value) == (
        f"{path}: is not text: not UTF-8: byte 0xff at offset 3 (invalid start byte)"
    )


def test_json_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": ')
    with pytest.raises(FileError, match=r"x\.json: not valid JSON: Expecting value"):
        read.json(path)
    path.write_text("[1]")
    assert read.json(path) == [1]
    with pytest.raises(FileError, match=r"x\.json: is not a JSON object: \[1\]"):
        read.json_object(path)


def test_gzip_data_is_read_whole_in_all_its_members() -> None:
    data = gzip.compress(b"abc") + gzip.compress(b"") + gzip.compress(b"d" * 200_000) + b"\0" * 9
    assert read.gunzipped("x", data) == b"abc" + b"d" * 200_000
    assert read.gunzipped("x", b"") == b""


def test_gzip_bomb_is_refused_before_it_grows() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(UnreadableError, match=r"x: decompressed, it has .* at most 1 MiB"):
        read.gunzipped("x", bomb, limits.MIB)


@pytest.mark.parametrize(
    "data", [b"x", gzip.compress(b"abc")[:-1], gzip.compress(b"abc" * 999)[:20], b"\x1f\x8b",
             gzip.compress(b"abc") + b"junk", gzip.compress(b"a")[:-5] + b"12345"],
    ids=["no gzip", "no end", "cut", "only a head", "junk after it", "wrong checksum"],
)  # fmt: skip
def test_damaged_gzip_data_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError, match=r"x: is (not gzip data|gzip data that is cut off)"):
        read.gunzipped("x", data)
