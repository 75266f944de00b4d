"""Loads over real sockets: send times, kept answers, and errors."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.raw import ANSWER, RawServer, TimetableServer, gaps, send_answer

from load.generator.planned import STREAMS, TIMETABLE, planned_chats, planned_requests
from pytest_vllm_gates.load.generator.loop import Loop
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.generator.socket_client import (
    STAMP,
    TIMESPEC,
    ActiveRequest,
    Clock,
    Target,
)
from pytest_vllm_gates.load.latency import latency
from pytest_vllm_gates.load.types import DrivenLoad, PlannedRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

Answer = Callable[[socket.socket, bytes], object]


@pytest.fixture
def start() -> Iterator[Callable[[Answer], RawServer]]:
    """Start servers that end with the test."""
    with contextlib.ExitStack() as servers:
        yield lambda answer: servers.enter_context(running(RawServer(answer)))


def drive(
    port: int, planned: list[PlannedRequest], users: int | None = None, silence_s: float = 60
) -> DrivenLoad:
    target = Target("127.0.0.1", port, {"X-Own": "yes"})
    return Loop(target, silence_s=silence_s).run(planned, users)


def test_large_request_is_sent_completely(start: Callable[..., RawServer]) -> None:
    server = start(send_answer)
    load = drive(server.port, planned_requests(1, body=b"x" * 3_000_000), users=1)
    head, _, body = server.requests_seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/x HTTP/1.1\r\n")
    assert b"\r\nX-Own: yes\r\n" in head
    assert b"\r\nConnection: close\r\n" in head
    assert body == b"x" * 3_000_000
    (raw,) = load.raws
    assert (raw.answer, raw.error) == (ANSWER, "")
    assert raw.sent_s is not None
    assert raw.intended_s <= raw.sent_s <= raw.arrivals[0][0] <= raw.ended_s <= load.took_s
    assert abs(load.begun_unix_s - time.time()) < 60


def test_answer_is_never_earlier_than_its_request() -> None:
    """The kernel stamps an answer while the client is kept from noting when it had sent."""
    clock = Clock(100.0)
    active = ActiveRequest(planned_requests(1)[0], 0.0, b"")
    active.sent_s = active.last_s = 0.7
    for at_s, data in ((0.5, b"x" * 10), (0.9, b"y" * 20)):
        stamp = TIMESPEC.pack(100, round(at_s * 1e9))
        active.reads.append((1.2, [(socket.SOL_SOCKET, STAMP, stamp)], data))
    raw = active.ended("", clock)
    times, sizes = zip(*raw.arrivals, strict=True)
    assert times == pytest.approx((0.5, 0.9))
    assert sizes == (10, 30)
    assert [raw.sent_s, raw.ended_s] == pytest.approx([0.5, 0.9])
    assert raw.lag_s == pytest.approx(0.7)
    active.last_s = 3.0
    assert active.ended("nothing came", clock).ended_s == 3.0, "what failed ended when it did"


def test_unstamped_read_counts_by_its_read_time() -> None:
    active = ActiveRequest(planned_requests(1)[0], 0.0, b"")
    active.reads.append((1.2, [], b"x"))
    assert active.ended("", Clock(100.0)).arrivals == ((1.2, 1),)


def test_no_more_requests_at_once_than_users(start: Callable[..., RawServer]) -> None:
    def answer(connection: socket.socket, data: bytes) -> None:
        time.sleep(0.02)
        send_answer(connection, data)

    server = start(answer)
    load = drive(server.port, planned_requests(20), users=4)
    assert len(load.raws) == 20
    assert server.most_at_once <= 4
    assert not any(raw.error for raw in load.raws)


def test_requests_are_sent_on_time_despite_open_answers(start: Callable[..., RawServer]) -> None:
    def answer(connection: socket.socket, data: bytes) -> None:
        time.sleep(0.3)
        send_answer(connection, data)

    server = start(answer)
    load = drive(server.port, planned_requests(10, every_s=0.02))
    assert sorted(raw.intended_s for raw in load.raws) == [0.02 * number for number in range(10)]
    assert all(raw.sent_s is not None and raw.sent_s >= raw.intended_s for raw in load.raws)
    assert server.most_at_once > 1


def test_arrival_time_is_the_kernels_not_a_late_reads(start: Callable[..., RawServer]) -> None:
    sent: list[float] = []

    def answer(connection: socket.socket, _: bytes) -> None:
        for part in (ANSWER[:20], ANSWER[20:]):
            connection.sendall(part)
            sent.append(time.monotonic())
            time.sleep(0.1)

    loop = Loop(Target("127.0.0.1", start(answer).port, {}), silence_s=60)
    turn = loop._turn

    def late(due_s: float | None) -> None:
        turn(due_s)
        time.sleep(0.05)

    loop._turn = late  # type: ignore[method-assign]
    (raw,) = loop.run(planned_requests(1), users=1).raws
    (first, _), (second, size) = raw.arrivals
    assert size == len(ANSWER)
    assert second - first == pytest.approx(sent[1] - sent[0], abs=0.02)
    assert raw.lag_s > 0.005


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda connection, _: connection.sendall(ANSWER[:9]), ""),
        (lambda connection, _: connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), "the connection broke: "),
        (lambda *_: time.sleep(2.0), "nothing came for 0.2 s"),
    ],
    ids=["ends", "resets", "silent"],
)  # fmt: skip
def test_broken_answers_are_reported(
    answer: Answer, message: str, start: Callable[..., RawServer]
) -> None:
    silence_s = 0.2 if message.startswith("nothing") else 60
    (raw,) = drive(start(answer).port, planned_requests(1), users=1, silence_s=silence_s).raws
    assert raw.error.startswith(message)
    assert answered(raw).error


def test_silent_request_is_given_up_while_others_go_on(start: Callable[..., RawServer]) -> None:
    def answer(connection: socket.socket, data: bytes) -> None:
        time.sleep(9.0 if b"/silent" in data else 0.05)
        send_answer(connection, data)

    silent = PlannedRequest("silent", "/silent", b"")
    load = drive(start(answer).port, [silent, *planned_requests(40)], users=2, silence_s=1.0)
    (at,) = [number for number, raw in enumerate(load.raws) if raw.name == "silent"]
    assert load.raws[at].error == "nothing came for 1 s"
    assert at < len(load.raws) - 1


def test_a_server_that_is_not_there_fails_every_request() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        load = drive(free.getsockname()[1], planned_requests(3, every_s=0.0))
    assert len(load.raws) == 3
    assert all("ECONNREFUSED" in raw.error or "refused" in raw.error for raw in load.raws)


def test_measured_gaps_agree_with_the_script() -> None:
    with running(TimetableServer(TIMETABLE)) as server:
        driven = measure(server.endpoint, planned_chats(), users=STREAMS)
        truth = sorted(gap / tokens for gap, tokens in gaps(server.sent()))
    answers = [answered(raw) for raw in driven.raws]
    assert [answer.error for answer in answers if answer.error] == []
    assert {
        (answer.output_tokens, answer.prompt_tokens, answer.counted_by) for answer in answers
    } == {(20, 7, "usage")}
    measured_gaps = sorted(
        gap for answer in answers if (figures := latency(answer)) for gap in figures.itl_s[::2]
    )
    assert len(measured_gaps) == len(truth)
    assert measured_gaps[len(measured_gaps) // 2] == pytest.approx(truth[len(truth) // 2], rel=0.1)
