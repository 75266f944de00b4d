"""What is kept of wrong requests and their answers."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

from servers import running
from servers.raw import RawServer
from servers.scripted import ScriptedServer

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.robustness.client import send_all
from pytest_vllm_gates.robustness.types import Repeat, WrongRequest

if TYPE_CHECKING:
    import socket

LARGE = 1_000_000


def test_reactions_keep_the_model_and_not_the_body() -> None:
    cases = [
        WrongRequest(name="large", body={"user": {"repeat": "x", "times": LARGE}}),
        WrongRequest(name="raw", raw=('"', Repeat(repeat="x", times=LARGE), '"')),
        WrongRequest(name="another model", body={"model": "other"}),
        WrongRequest(name="no model", without=("model",)),
    ]
    with running(ScriptedServer(lambda *_: (400, {"detail": "no"}))) as server:
        result = send_all(server.endpoint, cases, {}, 4096, Completion)
        sent_bytes = [len(request.data) for request in server.requests_seen]
    assert [reaction.model for reaction in result.reactions] == ["alias", "", "other", ""]
    assert min(sent_bytes[:2]) > LARGE
    assert len(repr(result)) < LARGE / 10


def test_no_body_outlives_its_reaction() -> None:
    cases = [
        WrongRequest(name=f"large {number}", body={"user": {"repeat": "x", "times": LARGE}})
        for number in range(8)
    ]

    def refuse(connection: socket.socket, _: bytes) -> None:
        server.requests_seen.clear()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}")

    gc.disable()
    try:
        with running(RawServer(refuse)) as server:
            tracemalloc.start()
            result = send_all(server.endpoint, cases, {}, 4096, Completion)
            kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert [reaction.status for reaction in result.reactions] == [400] * len(cases)
    assert kept_bytes < 3 * LARGE
