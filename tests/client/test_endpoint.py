"""A running server's key, headers and authorities reach every client and are never shown."""

from __future__ import annotations

import contextlib
import http.server
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from load.generator.planned import planned_requests
from servers import running
from servers.raw import RawServer
from servers.stub import StubServer

from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.client import endpoint, http as client_http
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.endpoint import Endpoint, of_lane
from pytest_vllm_gates.client.ready import served_models
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.isolation.cancel import _Client
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.types import ALONE, Workers
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.server import ready
from pytest_vllm_gates.server.metrics import Metrics

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.catalog.family import Family

URL = "http://127.0.0.1:9/v1"
SECRET = "s3cr3t-canary-0123456789"
NOTHING = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


def lane(**keys: Any) -> Lane:
    return Lane(name="canary", file=Path("/nowhere/lanes/canary.toml"), title="t", **keys)


def running_lane(**keys: Any) -> Lane:
    return lane(base_url=URL, **keys)


def test_lane_sets_key_headers_and_authorities() -> None:
    made = running_lane(
        api_key_env="CANARY_KEY",
        headers={"x-canary": "true", "X-Token": "t ${TOKEN}", "host": "canary.internal"},
        verify=False,
    )
    server = of_lane(made, {"CANARY_KEY": "k", "TOKEN": SECRET, "OPENAI_API_KEY": "other"}, "O")
    assert server.request_headers() == {
        "x-canary": "true", "X-Token": f"t {SECRET}", "Host": "canary.internal",
        "Authorization": "Bearer k",
    }  # fmt: skip
    assert server.verify is False
    assert SECRET not in repr(server)


def test_lane_without_a_variable_takes_the_option_s() -> None:
    assert of_lane(running_lane(), {"OPENAI_API_KEY": "k"}, "OPENAI_API_KEY").api_key == "k"
    assert of_lane(running_lane(), {}, "OPENAI_API_KEY").api_key is None


def test_authorization_header_takes_the_place_of_the_key() -> None:
    made = running_lane(headers={"authorization": "Basic ${LOGIN}"})
    server = of_lane(made, {"LOGIN": "abc", "OPENAI_API_KEY": "k"}, "OPENAI_API_KEY")
    assert server.request_headers() == {"Authorization": "Basic abc"}
    assert server.request_headers("wrong") == {"Authorization": "Bearer wrong"}


@pytest.mark.parametrize(
    ("keys", "named"),
    [({"headers": {"X-A": "${ABSENT}"}}, "X-A names ${ABSENT}"),
     ({"api_key_env": "ABSENT"}, "api_key_env names ABSENT")],
)  # fmt: skip
def test_variable_that_is_not_set_is_named(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match="not set") as caught:
        of_lane(running_lane(**keys), {}, "OPENAI_API_KEY")
    assert named in str(caught.value)
    assert "lane canary" in str(caught.value)


def test_secrets_are_key_and_named_variables() -> None:
    made = running_lane(api_key_env="KEY", headers={"X-A": "a ${TOKEN}", "x-canary": "yes"})
    assert endpoint.secrets(made, {"KEY": "k", "TOKEN": "t"}) == ["k", "t", "a t"]
    assert endpoint.secrets(made, {}) == []


def answer(connection: socket.socket, _: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(NOTHING)


def chat(server: Endpoint, family: Family) -> None:
    client = Chat(server, family)
    with contextlib.suppress(ValueError):
        client.ask({"messages": []})
    client.client.close()


def metrics(server: Endpoint, _: Family) -> None:
    with contextlib.suppress(NotApplicable):
        Metrics(server)


def load(workers: Workers) -> Callable[[Endpoint, Family], object]:
    return lambda server, _: measure(server, planned_requests(1), 1, workers=workers)


def leaves(server: Endpoint, _: Family) -> None:
    client = _Client(server, {})
    client.read_first()
    client.leave()


CLIENTS: dict[str, Callable[[Endpoint, Family], object]] = {
    "plain": lambda server, _: client_http.post(server, "/tokenize", {}),
    "recorded": lambda server, _: client_http.recorded(server, {}),
    "chat": chat,
    "health": lambda server, _: ready.healthy(server),
    "metrics": metrics,
    "load": load(ALONE),
    "locust": load(Workers(2)),
    "leaving": leaves,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_sends_the_headers(name: str, qwen: Family) -> None:
    with running(RawServer(answer)) as server:
        made = lane(
            base_url=server.endpoint.base_url,
            api_key_env="KEY",
            headers={"x-canary": "${TOKEN}", "Host": "canary.internal"},
        )
        asked = of_lane(made, {"KEY": "the-key", "TOKEN": SECRET}, "OPENAI_API_KEY")
        CLIENTS[name](asked, qwen)
        heads = [data.partition(b"\r\n\r\n")[0].lower() for data in server.requests_seen]
    assert heads
    for head in heads:
        assert f"x-canary: {SECRET}".encode() in head
        assert b"authorization: bearer the-key" in head
        assert head.count(b"\r\nhost: ") == 1
        assert b"\r\nhost: canary.internal" in head


def test_chat_client_sends_the_lanes_own_authorization(qwen: Family) -> None:
    with running(RawServer(answer)) as server:
        made = lane(base_url=server.endpoint.base_url, headers={"authorization": "Basic ${LOGIN}"})
        chat(of_lane(made, {"LOGIN": "abc"}, "OPENAI_API_KEY"), qwen)
        (head,) = (data.partition(b"\r\n\r\n")[0].lower() for data in server.requests_seen)
    assert head.count(b"\r\nauthorization: ") == 1
    assert b"\r\nauthorization: basic abc" in head


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def encrypted(authority: trustme.CA) -> Iterator[str]:
    """The URL of a server behind TLS, with a certificate of an unusual authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = StubServer()
    assert isinstance(server, http.server.ThreadingHTTPServer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server):
        yield f"https://127.0.0.1:{server.server_port}/v1"


def test_own_authority_is_accepted(
    encrypted: str, authority: trustme.CA, tmp_path: Path, qwen: Family
) -> None:
    """Its file is relative to the lane's folder."""
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    made = Lane(name="c", file=tmp_path / "c.toml", title="t", base_url=encrypted, verify="ca.pem")
    server = of_lane(made, {}, "OPENAI_API_KEY")
    with client_http.client(server) as client:
        assert served_models(client)
    chat(server, qwen)
    leaves(server, qwen)


def test_certificate_check_can_be_turned_off(encrypted: str, qwen: Family) -> None:
    server = of_lane(lane(base_url=encrypted, verify=False), {}, "OPENAI_API_KEY")
    with client_http.client(server) as client:
        assert served_models(client)
    leaves(server, qwen)


def test_unknown_certificate_is_refused(encrypted: str, qwen: Family) -> None:
    server = of_lane(lane(base_url=encrypted), {}, "OPENAI_API_KEY")
    with client_http.client(server) as client, pytest.raises(Exception, match="CERTIFICATE_VERIFY"):
        served_models(client)
    with pytest.raises(ssl.SSLCertVerificationError):
        leaves(server, qwen)


def test_file_without_certificates_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    server = Endpoint("https://127.0.0.1:9/v1", "m", verify=str(path))
    with pytest.raises(UserError, match="not a PEM file") as caught:
        client_http.client(server)
    assert str(path) in str(caught.value)
