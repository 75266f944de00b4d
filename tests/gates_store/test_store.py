"""A store is a folder, an archive or a URL of one; its goldens are found in it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import httpx2 as httpx
import pytest
from servers import running
from servers.raw import RawServer

from gates_store.test_archive import FILES, tarred, zipped
from pytest_vllm_gates.bounded import limits
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store import fetch, store

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

LOCK = "qwen3.5/main/miniature/lock.txt"


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def serves(data: bytes, head: str = "200 OK") -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _: bytes) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(
                f"HTTP/1.1 {head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
            )

    return answer


def test_folder_is_read_where_it_lies(tmp_path: Path) -> None:
    folder = write(tmp_path / "store", FILES)
    for source in (folder, folder / "golden"):
        assert store.opened(str(source)) == folder / "golden"


@pytest.mark.parametrize("below", ["", "project-0f3a/"])
def test_archive_is_unpacked_elsewhere(tmp_path: Path, below: str) -> None:
    files = {below + name: data for name, data in FILES.items()}
    for path in (tarred(tmp_path / "s.tar.gz", files), zipped(tmp_path / "s.zip", files)):
        found = store.opened(str(path))
        assert (found / LOCK).read_bytes() == b"text"
        assert not found.is_relative_to(tmp_path)


def test_url_of_an_archive_is_fetched(tmp_path: Path) -> None:
    data = tarred(tmp_path / "s.tar.gz", FILES).read_bytes()
    with running(RawServer(serves(data))) as server:
        url = f"http://127.0.0.1:{server.port}/golden.tar.gz?signature=secret"
        assert (store.opened(url) / LOCK).read_bytes() == b"text"


@pytest.mark.parametrize(
    ("head", "why"),
    [("404 Not Found", "it answers 404"), ("500 Error", "it answers 500")],
)
def test_url_that_has_no_archive_is_refused(head: str, why: str) -> None:
    with running(RawServer(serves(b"no", head))) as server, pytest.raises(UserError) as caught:
        store.opened(f"http://127.0.0.1:{server.port}/a.zip?signature=secret")
    assert why in str(caught.value)
    assert "curl -fLo" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_absent_server_of_a_store_is_named() -> None:
    with pytest.raises(UserError, match=r"the store http://127\.0\.0\.1:9/a cannot be fetched"):
        store.opened("http://me:password@127.0.0.1:9/a")


def test_url_of_too_much_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.VARIABLE, "1")
    with (
        running(RawServer(serves(bytes(3 * limits.MIB)))) as server,
        pytest.raises(UserError, match="at most 1 MiB"),
    ):
        store.opened(f"http://127.0.0.1:{server.port}/a.zip")


def test_archive_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "FETCH_S", -1.0)
    with (
        running(RawServer(serves(b"data"))) as server,
        pytest.raises(UserError, match="has not ended"),
    ):
        store.opened(f"http://127.0.0.1:{server.port}/a.zip")


def test_https_store_does_not_go_on_to_http() -> None:

    with pytest.raises(httpx.UnsupportedProtocol, match="redirects from https to http"):
        fetch._only_tls(httpx.Request("GET", "http://elsewhere/a.zip"))


def test_source_without_goldens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        store.opened(str(tmp_path / "absent"))
    with pytest.raises(UserError, match="has no folder golden/") as caught:
        store.opened(str(write(tmp_path / "other", {"a": b"", "b/c": b""})))
    assert "tar -czf golden.tar.gz golden" in str(caught.value)
