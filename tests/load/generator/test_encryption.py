"""A load over TLS: the same answers at the same times, and errors that name TLS."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from servers import running
from servers.encrypted import EncryptedServer
from servers.raw import ANSWER, RawServer, TimetableServer, gaps, send_answer

from load.generator.planned import STREAMS, TIMETABLE, planned_chats, planned_requests
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.latency import latency
from pytest_vllm_gates.load.types import ALONE, Workers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY = "key-0123456789abcdef"
BODY = b"x" * 3_000_000


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def encrypt(authority: trustme.CA) -> Iterator[Callable[[int], EncryptedServer]]:
    """Put TLS before the server at a port until the test ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    authority.issue_cert("localhost").configure_cert(context)
    with contextlib.ExitStack() as servers:
        yield lambda port: servers.enter_context(running(EncryptedServer(context, port)))


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> str:
    """The file of the authority that signed the server's certificate."""
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.cert_pem.bytes())
    return str(path)


def endpoint(server: EncryptedServer, verify: bool | str) -> Endpoint:
    return Endpoint(f"https://localhost:{server.port}/v1", "scripted", KEY, verify=verify)


@pytest.mark.parametrize("workers", [ALONE, Workers(2)], ids=["alone", "locust"])
def test_large_request_and_its_answer_are_whole(
    encrypt: Callable[[int], EncryptedServer], trusted: str, workers: Workers
) -> None:
    with running(RawServer(send_answer)) as server:
        front = encrypt(server.port)
        load = measure(
            endpoint(front, trusted), planned_requests(6, body=BODY), users=2, workers=workers
        )
        heads = [data.partition(b"\r\n\r\n") for data in server.requests_seen]
    assert [(raw.answer, raw.error) for raw in load.raws] == [(ANSWER, "")] * 6
    for raw in load.raws:
        assert raw.sent_s is not None
        assert raw.intended_s <= raw.sent_s <= raw.arrivals[0][0] <= raw.ended_s <= load.took_s
    assert [body for _, _, body in heads] == [BODY] * 6
    assert all(f"\r\nAuthorization: Bearer {KEY}\r\n".encode() in head for head, _, _ in heads)
    assert all(f"\r\nHost: localhost:{front.port}\r\n".encode() in head for head, _, _ in heads)
    assert set(front.protocols) == {"http/1.1"}


def test_measured_gaps_agree_with_the_script(
    encrypt: Callable[[int], EncryptedServer], trusted: str
) -> None:
    with running(TimetableServer(TIMETABLE)) as server:
        front = encrypt(int(server.endpoint.base_url.split(":")[2].partition("/")[0]))
        driven = measure(endpoint(front, trusted), planned_chats(), users=STREAMS)
        truth = sorted(gap / tokens for gap, tokens in gaps(server.sent()))
    answers = [answered(raw) for raw in driven.raws]
    assert [answer.error for answer in answers if answer.error] == []
    assert {(answer.output_tokens, answer.counted_by) for answer in answers} == {(20, "usage")}
    measured_gaps = sorted(
        gap for answer in answers if (figures := latency(answer)) for gap in figures.itl_s[::2]
    )
    assert len(measured_gaps) == len(truth)
    assert measured_gaps[len(measured_gaps) // 2] == pytest.approx(truth[len(truth) // 2], rel=0.1)


@pytest.mark.parametrize("workers", [ALONE, Workers(1)], ids=["alone", "locust"])
def test_a_certificate_that_is_not_trusted_is_the_error_of_each_request(
    encrypt: Callable[[int], EncryptedServer], workers: Workers
) -> None:
    with running(RawServer(send_answer)) as server:
        load = measure(
            endpoint(encrypt(server.port), verify=True), planned_requests(2), 1, workers=workers
        )
        assert server.requests_seen == []
    assert len(load.raws) == 2
    for raw in load.raws:
        assert "CERTIFICATE_VERIFY_FAILED" in raw.error
        assert (raw.sent_s, raw.answer) == (None, b"")


def test_an_unchecked_certificate_is_taken(encrypt: Callable[[int], EncryptedServer]) -> None:
    with running(RawServer(send_answer)) as server:
        load = measure(endpoint(encrypt(server.port), verify=False), planned_requests(2), 1)
    assert [(raw.answer, raw.error) for raw in load.raws] == [(ANSWER, "")] * 2


def test_a_server_without_tls_is_the_error_of_each_request() -> None:
    def plain(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with running(RawServer(plain)) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        # The server waits for the rest of what it takes for a request's head.
        load = measure(Endpoint(url, "m", verify=False), planned_requests(1), 1, silence_s=1.0)
    (raw,) = load.raws
    assert raw.error
    assert raw.sent_s is None


def test_a_connection_cut_off_in_its_answer_is_not_whole(
    encrypt: Callable[[int], EncryptedServer], trusted: str
) -> None:
    with running(RawServer(lambda connection, _: connection.sendall(ANSWER[:-9]))) as server:
        load = measure(endpoint(encrypt(server.port), trusted), planned_requests(1), 1)
    (raw,) = load.raws
    assert raw.answer == ANSWER[:-9]
    assert answered(raw).error
