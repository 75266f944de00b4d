"""A connection has one request within its budget, and Ctrl-C ends all connections at once."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from servers import running
from servers.raw import RawServer
from survivors import until

from pytest_vllm_gates.client import http, recorder
from pytest_vllm_gates.client.bounds import Bounds, Interrupted, LimitExceeded
from pytest_vllm_gates.client.sockets import CONNECTIONS

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
SMALL = Bounds(body_bytes=10_000, stream_bytes=10_000, body_s=0.5, stream_s=1.0)


@pytest.fixture(autouse=True)
def _begin() -> Iterator[None]:
    CONNECTIONS.begin()
    yield
    CONNECTIONS.begin()


def post(server: RawServer, **options: Any) -> httpx.Response:
    endpoint = replace(server.endpoint, bounds=SMALL)
    return http.post(endpoint, "/x", {"a": 1, **options})


def sends(*pieces: bytes, every_s: float = 0.0) -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _: bytes) -> None:
        with contextlib.suppress(OSError):  # the client leaves
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(every_s)

    return answer


def test_dripping_answer_ends_at_its_limit() -> None:
    server = RawServer(sends(HEAD + b"\r\n", *[b" "] * 100, every_s=0.05))
    with running(server), pytest.raises(LimitExceeded, match=r"body did not end in 0\.5 s"):
        post(server)


def test_gzip_bomb_ends_at_the_size_it_has_unpacked() -> None:
    data = gzip.compress(b" " * 10**8)
    server = RawServer(sends(HEAD + b"Content-Encoding: gzip\r\n\r\n" + data))
    with running(server), pytest.raises(LimitExceeded, match="larger than"):
        post(server)


def test_compressed_answer_is_read_and_recorded_as_it_is_meant() -> None:
    data = gzip.compress(b'{"a": 7}')
    server = RawServer(sends(HEAD + b"Content-Encoding: gzip\r\n\r\n" + data))
    with running(server):
        reply = post(server)
        assert reply.json() == {"a": 7}
        assert b"Accept-Encoding: identity" in server.requests_seen[0]


def test_connection_carries_one_request() -> None:
    """The server would keep it open: all bytes after the answer are recorded."""
    more: list[bytes] = []

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        connection.settimeout(10)
        more.append(connection.recv(2**16))

    server = RawServer(answer)
    with running(server), http.client(server.endpoint) as client:
        for _ in range(3):
            client.post("/x", json={})
        until(lambda: len(more) == 3)
    assert more == [b""] * 3


def test_dripping_headers_end_at_their_limit() -> None:
    server = RawServer(sends(b"HTTP/1.1 200 OK\r\nX: ", *[b"y"] * 100, every_s=0.05))
    with running(server), pytest.raises(LimitExceeded, match="headers did not end"):
        post(server)


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, HEAD + b"\r\n" + b" " * 20_000],
    ids=["endless headers", "large body"],
)
def test_no_request_is_sent_after_three_answers_over_a_limit(data: bytes) -> None:
    server = RawServer(sends(data))
    endpoint = replace(server.endpoint, bounds=SMALL)
    with running(server):
        for _ in range(3):
            with pytest.raises(LimitExceeded, match=r"larger than|headers (take|did not end)"):
                http.post(endpoint, "/x", {})
        with pytest.raises(LimitExceeded, match="no more requests are sent"):
            http.post(endpoint, "/x", {})
        assert len(server.requests_seen) == 3


def test_long_waits_count_until_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two timeouts, an answer, three timeouts: the seventh request is not sent."""
    monkeypatch.setattr(recorder, "LONG_WAIT_S", 0.1)
    answers = iter([None, None, HEAD + b"Content-Length: 2\r\n\r\n{}", None, None, None])

    def answer(connection: socket.socket, _: bytes) -> None:
        if (data := next(answers)) is None:
            server.closing.wait(1)
        else:
            connection.sendall(data)

    server = RawServer(answer)
    endpoint = replace(server.endpoint, bounds=SMALL)
    outcomes: list[str] = []
    with running(server), http.client(endpoint) as client:
        for _ in range(7):
            try:
                outcomes.append(str(client.post("/x", json={}, timeout=0.2).status_code))
            except httpx.HTTPError as error:
                outcomes.append(type(error).__name__)
    waits = ["ReadTimeout"]
    assert outcomes == [*waits * 2, "200", *waits * 3, "LimitExceeded"]


def test_interrupt_ends_a_request_that_waits_and_sends_no_other() -> None:
    reached = threading.Event()

    def hang(*_: object) -> None:
        reached.set()
        server.closing.wait(30)

    server = RawServer(hang)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            http.post(server.endpoint, "/x", {})
        except httpx.HTTPError as error:
            errors.append(error)

    with running(server):
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert reached.wait(10)
        begun = time.monotonic()
        CONNECTIONS.end()
        for thread in threads:
            thread.join(5)
        assert time.monotonic() - begun < 2
        assert [type(error) for error in errors] == [Interrupted] * 8
        with pytest.raises(Interrupted):
            http.post(server.endpoint, "/x", {})
    with pytest.raises(Interrupted):  # it does not even connect
        http.post(server.endpoint, "/x", {})
    CONNECTIONS.begin()
    with pytest.raises(httpx.ConnectError):
        http.post(server.endpoint, "/x", {})
