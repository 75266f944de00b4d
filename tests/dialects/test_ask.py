"""The official clients' replies, if the server ends a connection within its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from servers import running
from servers.raw import STREAM_HEAD, RawServer

from pytest_vllm_gates.client import ready
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.dialects.ask import DialectClient
from pytest_vllm_gates.dialects.checks import unread
from pytest_vllm_gates.dialects.types import CHAT, COMPLETIONS, MESSAGES, RESPONSES, STREAM, WHOLE

if TYPE_CHECKING:
    import socket

CREATED = (
    b'event: response.created\ndata: {"type": "response.created", "sequence_number": 0, '
    b'"response": {"id": "resp_1", "object": "response", "created_at": 1, "model": "alias", '
    b'"status": "in_progress", "output": [], "parallel_tool_calls": true, "tool_choice": "auto", '
    b'"tools": []}}\n\n'
)
REQUESTS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hello"}]},
    COMPLETIONS: {"prompt": "Hello"},
    RESPONSES: {"input": "Hello"},
    MESSAGES: {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8},
}


def breaks_off(connection: socket.socket, _: bytes) -> None:
    """Begin a stream, and close the connection before its end."""
    connection.sendall(STREAM_HEAD + b"%x\r\n%s\r\n" % (len(CREATED), CREATED))


def hangs_up(connection: socket.socket, _: bytes) -> None:
    """Close the connection without an answer."""
    connection.close()


def test_a_stream_that_breaks_off_is_the_replys_fault() -> None:
    with running(RawServer(breaks_off)) as server:
        reply = DialectClient(server.endpoint).ask(RESPONSES, STREAM, "plain", REQUESTS[RESPONSES])
    assert reply.answered
    assert reply.finding_case.traits["end"] == "cut off by the server"
    assert [event.kind for event in reply.events] == ["response.created"]
    assert "the server ended the connection within its answer" in (unread(reply) or "")


@pytest.mark.parametrize("mode", [WHOLE, STREAM])
@pytest.mark.parametrize("dialect", [COMPLETIONS, RESPONSES, MESSAGES])
def test_a_connection_closed_without_an_answer_is_the_replys_fault(dialect: str, mode: str) -> None:
    with running(RawServer(hangs_up)) as server:
        reply = DialectClient(server.endpoint).ask(dialect, mode, "plain", REQUESTS[dialect])
    assert not reply.answered
    assert "the server ended the connection within its answer" in reply.error


def test_a_server_that_is_not_there_is_an_error_that_can_be_explained() -> None:
    client = DialectClient(Endpoint("http://127.0.0.1:9/v1", "alias"))
    with pytest.raises(Exception, match="Connection") as caught:
        client.ask(CHAT, WHOLE, "plain", REQUESTS[CHAT])
    assert ready.lost(caught.value, "http://127.0.0.1:9/v1")


def test_an_error_that_is_its_own_cause_is_read_once() -> None:
    """A client that raises a cause again while it handles the error makes such a circle."""
    cause = httpx.ReadError("closed")
    error = httpx.RemoteProtocolError("cut off")
    error.__cause__, cause.__context__ = cause, error
    assert ready.lost(error, "http://127.0.0.1:9/v1") is None
