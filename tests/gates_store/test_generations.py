"""Pushed files are pulled unchanged, from a folder, from S3 and over HTTP."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers.putting import PuttingServer

from gates_store import team_stores
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store import generations, store
from pytest_vllm_gates.gates_store.objects import TOKEN, Objects
from pytest_vllm_gates.gates_store.pack import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITERS = 8


@pytest.fixture(name="source", params=team_stores.KINDS)
def source_fixture(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    with team_stores.made(request.param, tmp_path, monkeypatch) as url:
        yield url


def shelf_of(source: str, kind: str = "golden", name: str = "main") -> generations.Shelf:
    return generations.Shelf(Objects(source), kind, name)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "qwen3.5" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_pushed_files_are_pulled_unchanged(source: str, tmp_path: Path) -> None:
    golden = write(tmp_path / "golden", boot="ok", stop="<|im_end|>")
    shelf = shelf_of(source)
    assert shelf.count() == 0
    first, is_new = shelf.push(golden)
    assert (first.number, is_new) == (1, True)
    assert shelf.push(golden) == (first, False)
    write(golden, boot="better")
    assert shelf.push(golden)[0].number == 2
    write(golden, boot="ok")
    third, is_new = shelf.push(golden)
    assert (third.number, third.sha256, is_new) == (3, first.sha256, True)
    assert [record.number for record in shelf_of(source).all()] == [1, 2, 3]
    shelf.unpack_whole(shelf.generation(2), tmp_path / "back")
    assert (tmp_path / "back/qwen3.5/boot.txt").read_text() == "better"
    assert (tmp_path / "back/qwen3.5/stop.txt").read_text() == "<|im_end|>"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_kinds_and_names_keep_apart(source: str, tmp_path: Path) -> None:
    shelf_of(source, "incidents", "a/b").push(write(tmp_path / "one", boot="1"))
    assert shelf_of(source, "incidents", "a/c").count() == 0
    assert shelf_of(source, "history", "a/b").count() == 0
    assert shelf_of(source, "incidents", "a/b").count() == 1


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_writers_at_the_same_moment_lose_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [
        write(tmp_path / f"writer-{number}", boot=str(number % 4)) for number in range(WRITERS)
    ]
    with (
        team_stores.made(kind, tmp_path, monkeypatch) as source,
        ThreadPoolExecutor(WRITERS) as pool,
    ):
        pushed = [*pool.map(lambda folder: shelf_of(source).push(folder), folders)]
        shelf = shelf_of(source)
        numbers = sorted(record.number for record, is_new in pushed if is_new)
        assert numbers == [*range(1, shelf.count() + 1)]
        for folder, (record, _) in zip(folders, pushed, strict=True):
            assert shelf.generation(record.number).sha256 == record.sha256
            assert hashlib.sha256(packed(folder)).hexdigest() == record.sha256


def test_gates_store_takes_the_last_goldens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with team_stores.s3(monkeypatch) as source:
        with pytest.raises(UserError, match=r"no goldens\npush goldens: vllm-gates store push s3:"):
            store.opened(source)
        for text in ("old", "new"):
            shelf_of(source).push(write(tmp_path / "golden", boot=text))
        folder = store.opened(source)
    assert (folder.name, (folder / "qwen3.5/boot.txt").read_text()) == ("golden", "new")


def test_archive_that_was_changed_is_refused(tmp_path: Path) -> None:
    source = str(tmp_path / "store")
    shelf = shelf_of(source)
    record, _ = shelf.push(write(tmp_path / "golden", boot="ok"))
    (archive,) = (tmp_path / "store/archives").iterdir()
    archive.write_bytes(packed(write(tmp_path / "other", boot="evil")))
    with pytest.raises(UserError, match="differs from the pushed archive"):
        shelf.unpack_whole(record, tmp_path / "back")
    archive.unlink()
    with pytest.raises(UserError, match=r"is missing\npush it again"):
        shelf.unpack_whole(record, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("<html>login</html>", "is not a record of a push"),
        ("{}", "is not a record of a push"),
        ('{"number": 7}', "has the number 7"),
        ('{"sha256": "../../../etc/passwd"}', "is not a record of a push"),
        (" " * 70_000, "has 68.36 KiB, and at most 64 KiB are read"),
    ],
)
def test_record_from_outside_is_not_trusted(record: str, says: str, tmp_path: Path) -> None:
    shelf = shelf_of(str(tmp_path / "store"))
    shelf.push(write(tmp_path / "golden", boot="ok"))
    path = tmp_path / "store/golden/main/1.json"
    if record.startswith('{"'):
        record = json.dumps({**json.loads(path.read_text()), **json.loads(record)})
    path.write_text(record)
    with pytest.raises(UserError, match=says):
        shelf.generation(1)


@pytest.mark.parametrize("name", ["../main", "", "/etc", "a//b", "a b", "x" * 300, ".hidden"])
def test_name_cannot_be_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be a name in a store"):
        shelf_of(str(tmp_path), "golden", name)


def test_token_of_a_store_behind_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PuttingServer("s3cr3t-token") as server:
        with pytest.raises(UserError, match=r"401 Unauthorized.*\n.*VLLM_GATES_STORE_TOKEN"):
            shelf_of(server.url).count()
        monkeypatch.setenv(TOKEN, "s3cr3t-token")
        shelf_of(server.url).push(write(tmp_path / "golden", boot="ok"))
        assert sorted(path.partition("/team/")[2].partition("/")[0] for path in server.kept) == [
            "archives", "golden",
        ]  # fmt: skip


def test_missing_store_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = pytest.raises(UserError, match=r"(?s)the store failed: s3://nobody-has-it/x/.*bucket")
    with team_stores.s3(monkeypatch), failed:
        shelf_of("s3://nobody-has-it/x").push(Path(__file__))
    with pytest.raises(UserError, match="'ftp://host/x' cannot be a store"):
        Objects("ftp://user:secret@host/x")


@pytest.mark.parametrize("entry", ["nothing", "link", "missing"])
def test_files_that_cannot_be_pushed_are_reported(entry: str, tmp_path: Path) -> None:
    folder = tmp_path / "golden"
    if entry != "missing":
        folder.mkdir()
    if entry == "link":
        (folder / "link").symlink_to("/etc/hostname")
    says = {"nothing": "has no files", "link": "is a link", "missing": "no such file or folder"}
    with pytest.raises(UserError, match=says[entry]):
        shelf_of(str(tmp_path / "store")).push(folder)
    assert not (tmp_path / "store/golden").exists()
