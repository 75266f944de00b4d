"""Each call of each write fails in turn: the old state or the new one is left, and no debris."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from write_faults import after_each_fault, tree

from pytest_vllm_gates import files
from pytest_vllm_gates.files import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = b"old", b"new and longer" * 1000


def empty(place: Path) -> None:
    place.mkdir()


def with_old(place: Path) -> None:
    place.mkdir()
    (place / "file").write_bytes(OLD)


def holding(content: bytes) -> dict[str, bytes | None]:
    return {"file": content}


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    calls = set()
    for place, call, error in after_each_fault(
        lambda place: files.write_whole(place / "file", NEW), tmp_path, with_old
    ):
        assert tree(place) == holding(OLD if error else NEW), call
        if error:
            assert isinstance(error, WriteError), call
            assert str(error).startswith(f"{place}/file was not written: ")
        calls.add(call)
    assert calls >= {"open", "write", "fsync", "close", "replace", ""}


def test_file_and_its_folders_appear_together(tmp_path: Path) -> None:
    for place, call, error in after_each_fault(
        lambda place: files.write_whole(place / "a" / "b" / "file", NEW), tmp_path, empty
    ):
        expected = {} if error else {"a": None, "a/b": None, "a/b/file": NEW}
        assert tree(place) == expected, call


def test_copy_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "COPY_BYTES", 4096)
    source = tmp_path / "source"
    source.write_bytes(NEW)
    for place, call, error in after_each_fault(
        lambda place: files.copy_whole(source, place / "file"), tmp_path, with_old
    ):
        assert tree(place) == holding(OLD if error else NEW), call


def three(place: Path) -> dict[Path, str | bytes]:
    return {place / "file": NEW, place / "lanes" / "one": "1", place / "lanes" / "two": "2"}


def test_several_files_change_together(tmp_path: Path) -> None:
    new = {"file": NEW, "lanes": None, "lanes/one": b"1", "lanes/two": b"2"}
    for place, call, error in after_each_fault(
        lambda place: files.write_together(three(place)), tmp_path, with_old
    ):
        assert tree(place) == (holding(OLD) if error else new), call


def test_file_systems_without_links_keep_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    for place, call, error in after_each_fault(
        lambda place: files.write_together(three(place)), tmp_path, with_old
    ):
        assert (tree(place) == holding(OLD)) is bool(error), call
        assert len(tree(place)) == (1 if error else 4), call


def test_addition_comes_whole(tmp_path: Path) -> None:
    for place, call, error in after_each_fault(
        lambda place: files.append(place / "file", NEW.decode()), tmp_path, with_old
    ):
        # The call that takes a part back may fail as well; only one call fails here.
        whole = OLD + NEW if not error or call == "close" else OLD
        assert tree(place) == holding(whole), call


def test_addition_to_no_file_leaves_none(tmp_path: Path) -> None:
    for place, call, error in after_each_fault(
        lambda place: files.append(place / "file", "text"), tmp_path, empty
    ):
        assert tree(place) == ({} if error and call != "close" else holding(b"text")), call


def filled(place: Path) -> None:
    with files.folder_aside(place) as aside:
        files.write_whole(aside / "requests" / "1.json", NEW)
        files.write_whole(aside / "incident.json", "{}")
        aside.rename(place / "incident")


def test_folder_appears_whole(tmp_path: Path) -> None:
    new = {
        "incident": None,
        "incident/requests": None,
        "incident/requests/1.json": NEW,
        "incident/incident.json": b"{}",
    }
    for place, call, error in after_each_fault(filled, tmp_path, empty):
        assert tree(place) == ({} if error else new), call


def test_probe_leaves_nothing(tmp_path: Path) -> None:
    for place, call, error in after_each_fault(
        lambda place: files.probe(place / "out"), tmp_path, empty
    ):
        assert tree(place) == ({} if error else {"out": None}), call


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_short_writes_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    real: Callable[[int, bytes], int] = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:most]))
    files.write_whole(tmp_path / "file", NEW)
    assert (tmp_path / "file").read_bytes() == NEW


PAST_THE_WRITER = {
    "all_reduce/program.py": "a rank's steps, as they happen; runs in a lane's interpreter",
    "checkpoints/miniatures.py": "into a folder that is renamed when it is whole",
    "environment/build.py": "an empty log",
    "environment/lock.py": "a temporary folder",
    "environment/release_lock.py": "a temporary folder",
    "files.py": "the writer",
    "gates_store/archive.py": "a temporary folder that is removed where unpacking fails",
    "gates_store/pack.py": "an archive in memory",
    "incidents/replay_target.py": "a temporary folder",
    "load/generator/locust_master.py": "a temporary folder",
    "load/generator/measure.py": "a temporary folder",
    "miniatures/build.py": "into a folder that is renamed when it is whole",
    "miniatures/build_adapters.py": "into a folder that is renamed when it is whole",
    "miniatures/build_draft_head.py": "into a folder that is renamed when it is whole",
    "miniatures/embedding.py": "into a folder that is renamed when it is whole",
    "miniatures/tokenizer.py": "into a folder that is renamed when it is whole",
    "process/process.py": "a log that grows",
    "prompts": "a temporary folder",
    "redaction/prompt_key.py": "a key that is made again where it is short",
    "server/kept/process.py": "a log that grows",
}
"""What may write without `files.py`, and why."""
WRITES = re.compile(
    r"""\.write_(?:text|bytes)\(|open\([^)\n]*["'][wax]b?["']|mkstemp\(|copyfile\("""
)


def test_every_other_write_goes_through_the_writer() -> None:
    package = Path(files.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if WRITES.search(path.read_text(encoding="utf-8"))
    }
    allowed = tuple(PAST_THE_WRITER)
    assert not [name for name in found if not name.startswith(allowed)]
