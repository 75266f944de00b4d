"""Loads under locust: workers share the requests, with the single loop's results."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median

import msgpack
import pytest
import zmq
from servers import running
from servers.raw import ANSWER, RawServer, TimetableServer, gaps, send_answer

from load.generator.planned import TIMETABLE, planned_chats, planned_requests
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.load.generator import messages
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.latency import latency
from pytest_vllm_gates.load.types import ALONE, DrivenLoad, PlannedRequest, RawResponse, Workers
from pytest_vllm_gates.process import guard

KEY = "key-0123456789abcdef"
SECRET = "secret-0123456789abcdef"
TWO = Workers(2)


def endpoint(port: int) -> Endpoint:
    return Endpoint(f"http://127.0.0.1:{port}/v1", "scripted", KEY)


def workers() -> dict[int, bytes]:
    """Return the command line of every worker process of this one, by its id."""
    command_lines = {}
    for pid in guard.descendants(os.getpid()):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"generator.worker_program" in line:
            command_lines[pid] = line
    return command_lines


def connections(pid: int, port: int) -> int:
    """Return how many connections a process has to a port of this machine."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        inodes.update(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    lines = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(row[2].endswith(f":{port:04X}") and row[9] in inodes for row in rows)


def test_users_are_spread_and_each_request_is_sent_once() -> None:
    connection_counts: list[int] = []
    exposed: list[bytes] = []

    lock = threading.Lock()

    def answer(connection: socket.socket, data: bytes) -> None:
        deadline = time.monotonic() + 20
        while server.most_at_once < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        with lock:  # nobody is answered before the first five have been looked at
            if not connection_counts:
                command_lines = workers()
                exposed.extend(command_lines.values())
                exposed.extend(Path(f"/proc/{pid}/environ").read_bytes() for pid in command_lines)
                connection_counts.extend(connections(pid, server.port) for pid in command_lines)
        send_answer(connection, data)

    planned = [
        PlannedRequest(str(number), "/v1/x", f'{{"number": {number}}}'.encode())
        for number in range(23)
    ]
    with running(RawServer(answer)) as server:
        load = measure(endpoint(server.port), planned, 5, workers=TWO)
    bodies = Counter(data.partition(b"\r\n\r\n")[2] for data in server.requests_seen)
    assert bodies == Counter(request.body for request in planned)
    assert all(f"Authorization: Bearer {KEY}".encode() in data for data in server.requests_seen)
    assert sorted(raw.name for raw in load.raws) == sorted(request.name for request in planned)
    assert {(raw.answer, raw.error) for raw in load.raws} == {(ANSWER, "")}
    assert server.most_at_once == 5
    assert sorted(connection_counts) == [2, 3]
    assert len(exposed) == 4
    assert not any(KEY.encode() in block for block in exposed)
    assert workers() == {}
    ends = [raw.ended_s for raw in load.raws]
    assert ends == sorted(ends)
    assert 0 < max(ends) <= load.took_s


def streamed(planned: list[PlannedRequest], by: Workers) -> tuple[DrivenLoad, list[float]]:
    """Drive a load on the timetable; return its result, and the gaps between the sent tokens."""
    with running(TimetableServer(TIMETABLE)) as server:
        load = measure(endpoint(server.port), planned, workers=by)
        return load, [gap / tokens for gap, tokens in gaps(server.sent())]


def measured_gaps(load: DrivenLoad) -> list[float]:
    """Return the gaps between tokens that did not come together."""
    latencies = [latency(answered(raw)) for raw in load.raws]
    return [gap for figures in latencies if figures for gap in figures.itl_s[::2]]


def test_workers_send_the_same_arrivals_as_the_single_loop() -> None:
    planned = planned_chats(every_s=0.02)
    alone, truth_alone = streamed(planned, ALONE)
    both, truth_both = streamed(planned, TWO)
    for load, truth in ((alone, truth_alone), (both, truth_both)):
        assert [answered(raw).error for raw in load.raws] == [""] * 16
        assert sorted(raw.intended_s for raw in load.raws) == [request.at_s for request in planned]
        assert len(measured_gaps(load)) == len(truth)
        assert median(measured_gaps(load)) == pytest.approx(median(truth), rel=0.1)
    by_name = {raw.name: raw for raw in alone.raws}
    for raw in both.raws:
        twin = by_name[raw.name]
        assert raw.answer == twin.answer
        assert raw.sent_s is not None and raw.sent_s >= raw.intended_s
        # Two runs on a machine that may be busy: the same zero, and the same course.
        assert raw.ended_s == pytest.approx(twin.ended_s, abs=1.0)
        assert raw.arrivals[-1][1] == twin.arrivals[-1][1] == len(raw.answer)


def test_worker_that_dies_is_named_and_ends_the_load() -> None:
    killed: list[int] = []
    lock = threading.Lock()

    def answer(*_: object) -> None:
        with lock:
            if not killed:
                killed.append(min(workers()))
                os.kill(killed[0], signal.SIGKILL)
        server.closing.wait(30)

    begun = time.monotonic()
    with running(RawServer(answer)) as server, pytest.raises(RuntimeError) as raised:
        measure(endpoint(server.port), planned_requests(9), 4, workers=TWO)
    assert time.monotonic() - begun < 20
    pattern = (
        rf"load worker \d of 2 \(process {killed[0]} on .+\) ended with status -9; [45] requests"
    )
    assert re.search(pattern, str(raised.value))
    assert workers() == {}


def test_remote_workers_serve_one_load_after_the_other() -> None:
    """The second load's server is not there: every request fails, and the load does not."""
    with socket.socket() as free, socket.socket() as nobody:
        free.bind(("127.0.0.1", 0))
        nobody.bind(("127.0.0.1", 0))
        port, gone = free.getsockname()[1], nobody.getsockname()[1]
        free.close()
        heard: list[bool] = []

        def answer(connection: socket.socket, data: bytes) -> None:
            heard.append(stranger(port))
            send_answer(connection, data)

        program = "pytest_vllm_gates.load.generator.locust_worker"
        argv = [sys.executable, "-m", program, "--master", f"127.0.0.1:{port}"]
        env = {**os.environ, messages.SECRET_VARIABLE: SECRET}
        by = Workers(1, f"127.0.0.1:{port}", SECRET)
        with (
            running(RawServer(answer)) as server,
            subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as far,
        ):
            try:
                load = measure(endpoint(server.port), planned_requests(1), 1, workers=by)
                failed = measure(endpoint(gone), planned_requests(5, every_s=0.01), workers=by)
            finally:
                far.send_signal(signal.SIGINT)
                far.wait(20)
    assert [(raw.answer, raw.error) for raw in load.raws] == [(ANSWER, "")]
    assert heard == [False]
    assert len(failed.raws) == 5
    assert all("cannot connect: " in raw.error and "refused" in raw.error for raw in failed.raws)


def stranger(port: int) -> bool:
    """Return whether a master answers one that does not know the secret."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger = 0
        asking.setsockopt(zmq.IDENTITY, b"stranger")
        asking.connect(f"tcp://127.0.0.1:{port}")
        wrong = {"proof": messages.proof("another", "stranger"), "pid": 1, "version": "0"}
        for kind, data in [(messages.ADMIT, wrong), ("client_ready", "2.0"), ("spawning", None)]:
            asking.send(msgpack.dumps((kind, data, "stranger")))
        asking.send(b"\xc1 no message at all")
        return bool(asking.poll(500))


def test_requests_are_dealt_out_by_the_users_of_each_worker() -> None:
    parts = messages.dealt(planned_requests(10), {"a": 3, "b": 1, "c": 0})
    assert [[int(request.name) for request in part] for part in parts.values()] == [
        [0, 2, 3, 4, 6, 7, 8],
        [1, 5, 9],
        [],
    ]


def test_messages_survive_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SLICE_BYTES", 100)
    raws = [
        RawResponse(
            str(number), 0.5, None, 1.5, b"\xff\0" * 30, ((0.75, 3), (1.0, 60)), 0.25, "broke"
        )
        for number in range(3)
    ]
    slices = [msgpack.loads(msgpack.dumps(rows)) for rows in messages.raw_rows(raws)]
    assert [len(rows) for rows in slices] == [2, 1]
    assert [messages.raw(row) for rows in slices for row in rows] == raws
    planned = planned_requests(2, every_s=0.5, body=b"\xff")
    (rows,) = messages.planned_rows(planned)
    assert [messages.planned(row) for row in msgpack.loads(msgpack.dumps(rows))] == planned


@pytest.mark.parametrize(
    ("value", "expected"), [("host", ("host", 5557)), ("10.0.0.1:9", ("10.0.0.1", 9))]
)
def test_address_has_a_port(value: str, expected: tuple[str, int]) -> None:
    assert messages.address(value) == expected


@pytest.mark.parametrize("value", ["", ":1", "host:", "host:0", "host:65536", "host:x"])
def test_invalid_address_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        messages.address(value)
