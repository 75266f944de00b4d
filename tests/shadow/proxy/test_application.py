"""Clients get what the stable server answers, byte by byte, whatever the canary does."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import socket
import time
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.idle import IdleClosingServer

from shadow.shadow_servers import CHAT, Chats, ask, chat, judged, raw, shadow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shadow.shadow_servers import ShadowProcess

Behind = tuple["ShadowProcess", Chats, Chats]
OF_THE_CONNECTION = {"connection", "transfer-encoding", "date"}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Give a shadow with its stable server and a canary as good as that."""
    folder = tmp_path_factory.mktemp("behind")
    with running(Chats()) as stable, running(Chats()) as canary:
        options = ("--canary-key-env", "CANARY_KEY", "--drain", "5")
        with shadow(f"{stable.url}/v1", canary.url, folder, *options,
                    env={"CANARY_KEY": "of-the-canary"}) as process:  # fmt: skip
            yield process, stable, canary


def seen_since(server: Chats, number: int) -> list[str]:
    return [path for _, path, _, _ in server.seen[number:]]


def plain(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in OF_THE_CONNECTION]


REQUESTS = [
    ("GET", "/v1/models", None),
    ("GET", "/health?a=%2F..%2f&b=%C3%A9+x&b=", None),
    ("GET", "//double//slash/./..%2e", None),
    ("HEAD", "/v1/models", None),
    ("OPTIONS", CHAT + "x", None),
    ("DELETE", "/v1/files/1", None),
    ("PUT", "/anything", b"\x00\xff" * 5000),
    ("PATCH", "/anything", b""),
    ("POST", "/v1/embeddings", b'{"input": "x"}'),
    ("POST", "/status/404", b"{}"),
    ("POST", "/status/500", b"{}"),
    ("GET", "/status/301", None),
    ("GET", "/status/204", None),
    ("POST", CHAT, b'{"model": "m", "messages": [], "temperature": 0}'),
    ("POST", CHAT, b'{ "messages": [], "stream":true }'),
    ("POST", "/large", os.urandom(6 * 2**20)),
]


@pytest.mark.parametrize(
    ("method", "path", "body"), REQUESTS, ids=[f"{r[0]} {r[1]}" for r in REQUESTS]
)
def test_answer_and_request_are_as_without_the_shadow(
    behind: Behind, method: str, path: str, body: bytes | None
) -> None:
    process, stable, _ = behind
    headers = {"Authorization": "Bearer mine", "X-Mine": "a", "Accept-Encoding": "gzip, br"}
    direct = ask(stable.server_port, method, path, body, headers)
    through = ask(process.port, method, path, body, headers)
    assert (direct[0], plain(direct[1]), direct[2]) == (through[0], plain(through[1]), through[2])
    first, second = stable.seen[-2:]
    assert [first[0], first[1], first[3]] == [second[0], second[1], second[3]]
    hosts = {"host", "accept-encoding", "connection"}
    # For methods that may have a body, a library sends Content-Length: 0 without one.
    kept = [
        sorted(
            (name.lower(), value)
            for name, value in each[2]
            if name.lower() not in hosts and value != "0"
        )
        for each in (first, second)
    ]
    assert kept[0] == kept[1]


def test_only_generations_are_copied_and_without_a_clients_key(behind: Behind) -> None:
    process, stable, canary = behind
    before, at_stable = len(canary.seen), len(stable.seen)
    ask(process.port, "GET", "/v1/models")
    ask(process.port, "POST", "/v1/embeddings", b"{}")
    ask(process.port, "POST", CHAT, b'{"messages": [], "previous_response_id": "r"}')
    body = b'{"messages": [], "model": "m"}'
    secrets = {"Authorization": "Bearer mine", "X-Api-Key": "mine", "Cookie": "mine"}
    pairs = judged(process.document())
    ask(process.port, "POST", CHAT + "?api-version=1", body, secrets)
    process.until_pairs(pairs + 1)
    (method, path, headers, data) = canary.seen[before]
    assert len(canary.seen) == before + 1
    assert (method, path, data) == ("POST", CHAT + "?api-version=1", body)
    assert dict(headers)["Authorization"] == "Bearer of-the-canary"
    assert "mine" not in str(headers)
    assert ("Authorization", "Bearer mine") in stable.seen[-1][2]
    assert len(stable.seen) == at_stable + 4


def test_the_canary_gets_only_listed_query_parameters(behind: Behind) -> None:
    process, stable, canary = behind
    pairs = judged(process.document())
    path = CHAT + "?api_key=mine&beta=true&key=mine&api-version=2%2F1"
    ask(process.port, "POST", path, b'{"messages": [], "model": "m"}')
    process.until_pairs(pairs + 1)
    assert stable.seen[-1][1] == path
    assert canary.seen[-1][1] == CHAT + "?beta=true&api-version=2%2F1"


@pytest.mark.parametrize("status", [400, 404, 429])
def test_a_request_that_the_stable_server_refuses_is_not_copied(
    tmp_path: Path, status: int
) -> None:
    with running(Chats(f"status {status}")) as stable, running(Chats()) as canary:
        with shadow(stable.url, canary.url, tmp_path) as process:
            assert chat(process.port)[0] == status
            traffic = process.until(lambda now: now["traffic"]["passed"])["traffic"]
        assert traffic["not_mirrored"] == {f"the stable server answers {status}": 1}
        assert canary.seen == []


def test_a_key_name_in_a_prompt_does_not_prevent_a_copy(behind: Behind) -> None:
    process, _, canary = behind
    pairs, before = judged(process.document()), len(canary.seen)
    chat(process.port, user="previous_response_id, conversation and background")
    process.until_pairs(pairs + 1)
    assert len(canary.seen) == before + 1


def test_a_target_with_a_host_goes_to_the_stable_server_all_the_same(behind: Behind) -> None:
    process, stable, canary = behind
    before = len(canary.seen)
    for port in (canary.server_port, 9):
        head = f"GET http://127.0.0.1:{port}/v1/models?a=1 HTTP/1.1"
        reply = raw(process.port, f"{head}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 200 As It Is"), reply
        assert stable.seen[-1][1] == "/v1/models?a=1"
    assert len(canary.seen) == before


@pytest.mark.parametrize(
    "target", ["*@127.0.0.1:{port}/", "@127.0.0.1:{port}/", ".a@127.0.0.1:{port}", "*"]
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "CONNECT"])
def test_no_target_leads_to_another_server(behind: Behind, target: str, method: str) -> None:
    process, _, canary = behind
    before = len(canary.seen)
    head = f"{method} {target.format(port=canary.server_port)} HTTP/1.1"
    reply = raw(process.port, f"{head}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert reply.split()[1] in (b"400", b"404"), reply
    assert len(canary.seen) == before


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(behind: Behind) -> None:
    process, _, _ = behind
    body = b'{"messages": [], "stream": true}'
    head = b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body))
    reply = raw(process.port, head + body)
    assert b"Transfer-Encoding" not in reply
    assert reply.endswith(b"data: [DONE]\n\n")


def test_a_request_to_change_the_protocol_is_answered_in_the_old_one(behind: Behind) -> None:
    process, stable, _ = behind
    lines = ("GET /v1/models HTTP/1.1", "Host: a", "Connection: Upgrade, HTTP2-Settings, close",
             "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", "", "")  # fmt: skip
    assert raw(process.port, "\r\n".join(lines).encode()).startswith(b"HTTP/1.1 200 As It Is")
    names = {name.lower() for name, _ in stable.seen[-1][2]}
    assert not names & {"upgrade", "http2-settings"}


def test_a_client_that_waits_for_100_continue_gets_it(behind: Behind) -> None:
    process, _, _ = behind
    lines = ("PUT /anything HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 2",
             "Connection: close", "", "hi")  # fmt: skip
    reply = raw(process.port, "\r\n".join(lines).encode())
    assert reply.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 As It Is")


def test_an_unreadable_answer_of_the_stable_server_is_not_shown(behind: Behind) -> None:
    process, _, _ = behind
    status, _, data = ask(process.port, "GET", "/garbage")
    assert status == 502
    assert b"another client" not in data


def test_a_malformed_request_is_not_printed(tmp_path: Path) -> None:
    printed = tmp_path / "errors"
    with (
        running(Chats()) as stable,
        printed.open("w") as errors,
        shadow(stable.url, stable.url, tmp_path, errors=errors) as process,
    ):
        lines = ("GET /v1/models HTTP/1.1", "Authorization: Bearer mi\x01ne", "", "")
        assert raw(process.port, "\r\n".join(lines).encode()).split()[1] == b"400"
        process.end()
    assert "Traceback" not in printed.read_text()
    assert "ne" not in printed.read_text().split()


def test_an_upload_that_breaks_off_keeps_no_memory(tmp_path: Path) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n" % CHAT.encode()
    with (
        running(Chats()) as stable,
        running(Chats()) as canary,
        shadow(stable.url, canary.url, tmp_path, "--memory-mib", "4") as process,
    ):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", process.port)) as client:
                client.sendall(head + b"x" * 800_000)
        process.until(lambda now: now["traffic"]["passed"] == 3)
        time.sleep(0.5)
        chat(process.port, user="x" * 800_000)
        document = process.until_pairs(1)
        assert "no memory is left for copies" not in document["traffic"]["not_mirrored"]


def test_pieces_of_a_stream_come_as_they_are_sent(behind: Behind) -> None:
    process, _, _ = behind
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    connection.request("GET", "/endless")
    reply = connection.getresponse()
    assert len(reply.read(200_000)) == 200_000  # of a stream that never ends
    connection.close()


def test_a_client_that_hangs_up_ends_the_request_upstream(behind: Behind) -> None:
    process, stable, _ = behind
    stable.hung_up.clear()
    client = socket.create_connection(("127.0.0.1", process.port))
    client.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.recv(1000)
    client.close()
    assert stable.hung_up.wait(60)


def test_an_answer_that_breaks_off_breaks_off_for_the_client_too(behind: Behind) -> None:
    process, _, _ = behind
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(process.port, "GET", "/cut")


def test_several_requests_of_one_connection_are_answered_in_their_order(behind: Behind) -> None:
    process, _, _ = behind
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    for number in range(5):
        connection.request("POST", f"/echo/{number}", b"x" * number)
        assert connection.getresponse().read() == b"POST /echo/%d\n" % number + b"x" * number
    connection.close()


def test_a_stable_server_that_is_gone_is_an_error_in_the_form_of_the_api(tmp_path: Path) -> None:
    with running(Chats()) as canary, shadow("http://127.0.0.1:9", canary.url, tmp_path) as process:
        status, data = chat(process.port)
        assert status == 502
        assert "the stable server cannot be reached" in json.loads(data)["error"]["message"]
        process.until(lambda now: now["traffic"]["failed"] == 1)
        assert canary.seen == []


def test_a_connection_that_the_stable_server_closed_when_idle_costs_no_request(
    tmp_path: Path,
) -> None:
    with running(Chats()) as canary, running(IdleClosingServer(3.0, 0.5)) as stable:
        with shadow(stable.endpoint.base_url, canary.url, tmp_path) as process:
            for _ in range(4):
                assert chat(process.port, named=False)[0] == 200
                time.sleep(3.2)
        assert stable.lost == 0
        assert stable.requests == 4


@pytest.mark.parametrize("mode", ["hangs", "crashes", "floods", "gone"])
def test_a_bad_canary_costs_clients_nothing(mode: str, tmp_path: Path) -> None:
    with running(Chats()) as stable, running(Chats(mode)) as canary:
        url = "http://127.0.0.1:9" if mode == "gone" else canary.url
        options = ("--in-flight", "4", "--waiting", "4", "--canary-timeout", "2", "--pair-mib", "1",
                   "--drain", "1")  # fmt: skip
        with shadow(stable.url, url, tmp_path, *options) as process:
            right = [chat(stable.server_port, stream=stream) for stream in (False, True)]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                streams = [number % 2 == 1 for number in range(60)]
                answers = list(pool.map(lambda stream: chat(process.port, stream=stream), streams))
            assert answers == [right[stream] for stream in streams]
            document = process.until(lambda now: sum(now["traffic"]["not_mirrored"].values())
                                     + judged(now) >= 60)  # fmt: skip
            assert document["traffic"]["passed"] == 60
            assert document["promotion"] == "REJECT", document
            assert document["reasons"][0].startswith("unanswered: ")


def test_sigterm_lets_requests_on_their_way_end(tmp_path: Path) -> None:
    with (
        running(Chats("slow")) as stable,
        running(Chats()) as canary,
        shadow(stable.url, canary.url, tmp_path) as process,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(chat, process.port)
        while not stable.seen:
            time.sleep(0.01)
        assert process.end() == 6
        assert answer.result()[0] == 200
        assert "KEEP WATCHING after 1 pairs" in process.printed


def test_the_share_and_the_memory_limit_are_as_configured(tmp_path: Path) -> None:
    with running(Chats()) as stable, running(Chats()) as canary:
        options = ("--share", "0.5", "--seed", "1", "--memory-mib", "1")
        with shadow(stable.url, canary.url, tmp_path, *options) as process:
            for _ in range(40):
                chat(process.port)
            document = process.until(lambda now: now["traffic"]["passed"] == 40
                                     and judged(now) == now["traffic"]["mirrored"])  # fmt: skip
            traffic = document["traffic"]
            assert 10 <= traffic["mirrored"] <= 30
            assert traffic["not_mirrored"]["not in the sample"] == 40 - traffic["mirrored"]
            status, _, data = ask(process.port, "POST", CHAT + "/x", b"x" * (3 * 2**20))
            assert status == 200 and len(data) > 3 * 2**20
            for _ in range(20):
                large = json.dumps({"messages": [{"content": "x" * 2**20}], "model": "m"})
                assert ask(process.port, "POST", CHAT, large.encode())[0] == 200
            process.until(lambda now: now["traffic"]["passed"] == 61)
            assert process.document()["traffic"]["not_mirrored"]["no memory is left for copies"]
