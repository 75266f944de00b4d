"""Ctrl-C ends a request that has no connection yet, and a name is not looked up for ever."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.raw import RawServer

from pytest_vllm_gates.client import sockets
from pytest_vllm_gates.client.bounds import Interrupted
from pytest_vllm_gates.client.sockets import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 60.0
"""Far longer than a test may take."""


@pytest.fixture(autouse=True)
def _begin() -> Iterator[None]:
    CONNECTIONS.begin()
    yield
    CONNECTIONS.begin()


def interrupted(ask: Callable[[], object], when: Callable[[], bool]) -> type[BaseException] | None:
    """Return what `ask` raises in a thread that is interrupted once it waits."""
    raised: list[type[BaseException]] = []

    def run() -> None:
        try:
            ask()
        except Exception as error:  # noqa: BLE001 - it is what is asked for
            raised.append(type(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not when():
        assert time.monotonic() < deadline, "the thread does not wait"
        time.sleep(0.01)
    time.sleep(0.2)
    assert thread.is_alive(), raised
    CONNECTIONS.end()
    thread.join(3)
    assert not thread.is_alive(), "it still waits"
    return raised[0] if raised else None


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """Yield the port of a listener whose queue is full: connections to it never succeed."""
    with socket.socket() as listener, contextlib.ExitStack() as queued:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = queued.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_connection_that_does_not_come_about_is_given_up() -> None:
    with full_listener() as port:
        ask = lambda: sockets.connect("127.0.0.1", port, WAIT_S)  # noqa: E731
        assert interrupted(ask, lambda: bool(CONNECTIONS._sockets)) is Interrupted
    assert not CONNECTIONS._sockets


def test_connection_that_does_not_come_about_has_a_timeout() -> None:
    with full_listener() as port, pytest.raises(TimeoutError):
        sockets.connect("127.0.0.1", port, 0.2)


def test_encryption_that_does_not_come_about_is_given_up() -> None:
    server = RawServer(lambda *_: None)
    with running(server), sockets.connect("127.0.0.1", server.port, WAIT_S) as connection:
        ask = lambda: sockets.encrypt(  # noqa: E731
            connection, ssl.create_default_context(), "localhost", WAIT_S
        )
        assert interrupted(ask, lambda: bool(CONNECTIONS._sockets)) is Interrupted
    assert not CONNECTIONS._sockets


def test_name_that_is_not_found_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = never_found(monkeypatch)
    try:
        ask = lambda: sockets.connect("gates.invalid", 80, WAIT_S)  # noqa: E731
        assert interrupted(ask, asked.is_set) is Interrupted
    finally:
        answered.set()


def test_name_that_is_not_found_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    _, answered = never_found(monkeypatch)
    try:
        with pytest.raises(TimeoutError, match=r"the address of gates\.invalid was not found in"):
            sockets.connect("gates.invalid", 80, 0.2)
    finally:
        answered.set()


def never_found(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Block lookups of names; return the event of a lookup, and the event that ends it."""
    look_up, asked, answered = socket.getaddrinfo, threading.Event(), threading.Event()

    def wait(host: str, port: int, *, type: int = 0, flags: int = 0) -> object:  # noqa: A002
        if flags:
            return look_up(host, port, type=type, flags=flags)
        asked.set()
        answered.wait(WAIT_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    return asked, answered


def test_second_address_is_tried_where_the_first_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = closed.getsockname()
    server = RawServer(lambda *_: None)
    with running(server):
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (refused, ("127.0.0.1", server.port))
        ]
        monkeypatch.setattr(sockets, "look_up", lambda *_: places)
        with sockets.connect("two.invalid", 80, 5.0) as connection:
            assert connection.getpeername()[1] == server.port
        monkeypatch.setattr(sockets, "look_up", lambda *_: places[:1])
        with pytest.raises(ConnectionRefusedError):
            sockets.connect("one.invalid", 80, 5.0)


@pytest.mark.parametrize("host", ["no-such-name.invalid", "a" * 64 + ".invalid"])
def test_wrong_name_is_an_error_of_the_network(host: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        sockets.connect(host, 80, 20.0)
