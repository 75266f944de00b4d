"""The version of a running server is requested with its lane's key and headers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers import running as serving
from servers.raw import RawServer

from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.lanes import running

if TYPE_CHECKING:
    import pytest

    from conftest import Fakes


def lane(url: str, **keys: Any) -> Lane:
    return Lane(name="l", file=Path("/nowhere/l.toml"), title="t", base_url=url, **keys)


def test_version_is_the_servers(fakes: Fakes) -> None:
    assert running.version(lane(fakes().base_url)) == "0.32.0"


def test_lane_that_boots_gets_no_request() -> None:
    booted = Lane(name="l", file=Path("/nowhere/l.toml"), title="t", python="python3")
    assert running.version(booted) is None


def test_absent_server_has_no_version() -> None:
    assert running.version(lane("http://127.0.0.1:9/v1")) is None
    assert running.version(lane("http://127.0.0.1:9/v1", headers={"X": "${NOT_SET_HERE}"})) is None


def test_answer_without_a_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY", "secret-0123456789")
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
    with serving(RawServer(lambda connection, _: connection.sendall(reply))) as server:
        asked = lane(server.endpoint.base_url, headers={"X-A": "${GATEWAY}"})
        assert running.version(asked) is None
        assert b"X-A: secret-0123456789" in server.requests_seen[0]
