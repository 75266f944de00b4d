"""An archive with only files is unpacked; any other member is refused by its name."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.bounded import limits
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.gates_store import archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {"golden/qwen3.5/main/miniature/lock.txt": b"text", "golden/baselines/m/0001_x.json": b"{}"}


def tarred(path: Path, files: dict[str, bytes], *more: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in more:
            tar.addfile(info)
    return path


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return path


def refusal(path: Path, folder: Path) -> str:
    folder.mkdir()
    with pytest.raises(FileError) as caught:
        archive.unpack(path, folder)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_files_are_unpacked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"store.{kind}"
    if kind == "zip":
        zipped(path, FILES)
    else:
        tarred(path, FILES, mode="w:gz" if kind == "tar.gz" else "w")
    out = tmp_path / "out"
    out.mkdir()
    archive.unpack(path, out)
    assert {name: (out / name).read_bytes() for name in FILES} == FILES
    assert len([file for file in out.rglob("*") if file.is_file()]) == len(FILES)


@pytest.mark.parametrize("make", [tarred, zipped])
@pytest.mark.parametrize(
    "name", ["../out.txt", "/etc/cron.d/x", "golden/../../x", "golden\\..\\x", "C:x"]
)
def test_name_outside_the_archive_is_refused(
    tmp_path: Path, make: Callable[[Path, dict[str, bytes]], Path], name: str
) -> None:
    path = make(tmp_path / "store", {name: b"x"})
    assert "is not a path inside the archive" in refusal(path, tmp_path / "out")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file != path]


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "info",
    [
        member("golden/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("golden/link", tarfile.SYMTYPE, "lock.txt"),
        member("golden/hard", tarfile.LNKTYPE, "golden/lock.txt"),
        member("golden/pipe", tarfile.FIFOTYPE),
        member("golden/device", tarfile.CHRTYPE),
    ],
    ids=["symlink out", "symlink in", "hard link", "pipe", "device"],
)
def test_links_and_devices_are_refused(tmp_path: Path, info: tarfile.TarInfo) -> None:
    path = tarred(tmp_path / "s.tar.gz", {}, info)
    message = refusal(path, tmp_path / "out")
    assert f"the member {info.name!r} is a link or a device" in message
    assert "tar -czf golden.tar.gz golden" in message


def test_symlink_of_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zip"
    info = zipfile.ZipInfo("golden/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(info, "/etc/passwd")
    assert "is a link or a device" in refusal(path, tmp_path / "out")


def test_bombs_end_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.VARIABLE, "1")
    zeros = {"golden/zeros": bytes(40 * limits.MIB)}
    for path in (tarred(tmp_path / "s.tar.gz", zeros), zipped(tmp_path / "s.zip", zeros)):
        message = refusal(path, tmp_path / f"{path.suffix}-out")
        assert "unpacked, it has" in message
        assert f"export {limits.VARIABLE}=" in message
        written = sum(f.stat().st_size for f in tmp_path.rglob("zeros"))
        assert written <= 2 * limits.MIB


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive._Budget, "members", 3)
    monkeypatch.setattr(archive._Budget.__init__, "__defaults__", (3,))
    path = tarred(tmp_path / "s.tar.gz", {f"golden/{n}": b"" for n in range(4)})
    assert "has more than" in refusal(path, tmp_path / "out")


def test_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("golden/a", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("golden/a", "2")
    assert "is in it twice" in refusal(path, tmp_path / "out")


@pytest.mark.parametrize(
    "data",
    [b"", b"golden", b"\x1f\x8b", b"PK\x03\x04", gzip.compress(b"x" * 600), b"\0" * 600],
    ids=["empty", "text", "cut gzip", "cut zip", "gzip of text", "zeros"],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "store"
    path.write_bytes(data)
    assert "archive" in refusal(path, tmp_path / "out")


def test_cut_archive_is_refused(tmp_path: Path) -> None:
    for path in (tarred(tmp_path / "s.tar.gz", FILES), zipped(tmp_path / "s.zip", FILES)):
        path.write_bytes(path.read_bytes()[:-30])
        assert "archive" in refusal(path, tmp_path / f"{path.suffix}-out")


def test_head_that_claims_much_does_not_allocate_it(tmp_path: Path) -> None:
    """A pax header declares its bytes; tarfile reads them at once."""
    info = tarfile.TarInfo("golden/x")
    info.type, info.size = tarfile.XHDTYPE, 7 * 2**30
    path = tmp_path / "s.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "is not a whole archive" in refusal(path, tmp_path / "out")
