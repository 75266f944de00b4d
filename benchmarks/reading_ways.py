"""The ways in which `reading.py` reads the chunks of many streams."""

from __future__ import annotations

import asyncio
import functools
import importlib
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.load.generator.loop import Loop
from pytest_vllm_gates.load.generator.socket_client import (
    READ_BYTES,
    STAMP,
    STAMP_BYTES,
    Target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.load.types import PlannedRequest

CLIENTS = "recvmsg, stamped (the client's)"
RCVLOWAT_BYTES = 300
"""Less than a chunk has, and twice as much is more than one has."""
BUSY_POLL = 46
BUSY_POLL_US = 50
Reads = list[tuple[float, Any, int]]
"""The Unix time of each read of a stream, the kernel's control messages, and the bytes."""
Arrivals = list[tuple[float, int]]
"""The time of each read, and the bytes of the answer so far."""


@dataclass(frozen=True)
class Way:
    """A way of reading."""

    name: str
    read: Callable[[list[socket.socket]], list[Reads]]
    options: tuple[tuple[int, int], ...] = ()
    """Options of the sockets."""


def by_recv(source: socket.socket, reads: Reads) -> bool:
    """Read as `client_cost.py` does in "reading alone"."""
    data = source.recv(READ_BYTES)
    reads.append((time.time(), (), len(data)))
    return bool(data)


def by_recvmsg(source: socket.socket, reads: Reads) -> bool:
    """Read with the kernel's stamp, as the client does."""
    data, stamps, _, _ = source.recvmsg(READ_BYTES, STAMP_BYTES)
    reads.append((time.time(), stamps, len(data)))
    return bool(data)


def by_recv_into(source: socket.socket, reads: Reads, buffer: bytearray) -> bool:
    """Read into one buffer."""
    size = source.recv_into(buffer)
    reads.append((time.time(), (), size))
    return size > 0


def by_recvmsg_into(source: socket.socket, reads: Reads, buffers: list[bytearray]) -> bool:
    """Read into one buffer, with the kernel's stamp."""
    size, stamps, _, _ = source.recvmsg_into(buffers, STAMP_BYTES)
    reads.append((time.time(), stamps, size))
    return size > 0


def polled(
    take: Callable[[socket.socket, Reads], bool], sockets: list[socket.socket],
    sleep_s: float = 0.0, *, waits: bool = True,
) -> list[Reads]:  # fmt: skip
    """Read what epoll finds; sleep before, if `waits` after the first socket became readable."""
    notes: list[Reads] = [[] for _ in sockets]
    by_number = {
        source.fileno(): (source, reads) for source, reads in zip(sockets, notes, strict=True)
    }
    with select.epoll() as epoll:
        for number in by_number:
            epoll.register(number, select.EPOLLIN)
        while by_number:
            if sleep_s:
                if waits:
                    epoll.poll()
                time.sleep(sleep_s)
            for number, _ in epoll.poll(0 if sleep_s else -1):
                source, reads = by_number[number]
                if not take(source, reads):
                    epoll.unregister(number)
                    del by_number[number]
    return notes


class Reader(asyncio.Protocol):
    """Reads one stream as a protocol."""

    def __init__(self, reads: Reads, ended: asyncio.Future[None]) -> None:
        self._reads, self._ended = reads, ended

    def data_received(self, data: bytes) -> None:
        """Note it."""
        self._reads.append((time.time(), (), len(data)))

    def connection_lost(self, _: Exception | None) -> None:
        """Note the end."""
        self._ended.set_result(None)


def by_asyncio(
    sockets: list[socket.socket], factory: Any = None, *, streams: bool = True
) -> list[Reads]:
    """Read with an event loop, by its streams or its protocols."""
    notes: list[Reads] = [[] for _ in sockets]

    async def stream(source: socket.socket, reads: Reads) -> None:
        if not streams:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()
            await loop.create_connection(lambda: Reader(reads, ended), sock=source)
            await ended
            return
        reader, writer = await asyncio.open_connection(sock=source)
        while data := await reader.read(READ_BYTES):
            reads.append((time.time(), (), len(data)))
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*map(stream, sockets, notes))

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(all_of_them())
    return notes


def by_uring(sockets: list[socket.socket], uring: Any) -> list[Reads]:
    """Read with one multishot receive a socket, into buffers that the kernel picks."""
    notes: list[Reads] = [[] for _ in sockets]
    left = len(sockets)
    with uring.Ring() as ring:
        group = ring.create_buf_group(READ_BYTES, 256)
        for source, reads in zip(sockets, notes, strict=True):
            ring.prepare_recv_multishot(source.fileno(), group, 0, (source, reads))
        while left:
            for completion in ring.wait():
                size = completion.res
                source, reads = completion.user_data
                if size > 0:
                    reads.append((time.time(), (), size))
                    completion.result.close()
                if not completion.flags & uring.IORING_CQE_F_MORE:
                    completion.take_user_data()
                    if size == 0:
                        left -= 1
                    else:
                        ring.prepare_recv_multishot(source.fileno(), group, 0, (source, reads))
    return notes


def by_client(requests: Sequence[PlannedRequest], target: Target) -> tuple[list[Arrivals], bytes]:
    """Read with the client's own loop; return the arrivals by Unix time, and an answer."""
    load = Loop(target, silence_s=60.0).run(requests, len(requests))
    raws = {raw.name: raw for raw in load.raws}
    arrivals = [
        [(load.begun_unix_s + at, size) for at, size in raws[request.name].arrivals]
        for request in requests
    ]
    return arrivals, load.raws[0].answer


def by_way(
    way: Way, requests: Sequence[PlannedRequest], target: Target
) -> tuple[float, list[Reads]]:
    """Send the requests and read the answers in one way; return the CPU seconds, and the reads."""
    began_s = time.process_time()
    sockets = []
    try:
        for request in requests:
            source = socket.socket(target.family, socket.SOCK_STREAM)
            sockets.append(source)
            source.connect(target.address)
            for option, value in way.options:
                source.setsockopt(socket.SOL_SOCKET, option, value)
            source.sendall(target.bytes_of(request))
        notes = way.read(sockets)
        return time.process_time() - began_s, notes
    finally:
        for source in sockets:
            source.close()


def library(name: str, folder: str) -> Any:
    """Return a library, installed if it is not here; a string has the reason if it cannot be."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        argv = [*pip, "--target", folder, name.replace("_", "-")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return str(error)


def ways(folder: str, half_step_s: float) -> tuple[list[Way], list[str]]:
    """Return the ways of this machine, and a line for each that it does not have."""
    buffer = bytearray(READ_BYTES)
    into = functools.partial(by_recv_into, buffer=buffer)
    stamped = ((STAMP, 1),)

    def epoll(take: Any, sleep_s: float = 0.0, *, waits: bool = True) -> Any:
        return functools.partial(polled, take, sleep_s=sleep_s, waits=waits)

    found = [
        Way("recv", epoll(by_recv)),
        Way("recv_into", epoll(into)),
        Way(CLIENTS, epoll(by_recvmsg), stamped),
        Way(
            "recvmsg_into, stamped",
            epoll(functools.partial(by_recvmsg_into, buffers=[buffer])), stamped,
        ),
        *(
            Way(
                f"recvmsg, stamped, SO_RCVLOWAT {count} chunk{'s' * (count > 1)}",
                epoll(by_recvmsg), (*stamped, (socket.SO_RCVLOWAT, RCVLOWAT_BYTES * count)),
            )
            for count in (1, 2)
        ),
        *(
            Way(f"recvmsg, stamped, {text}", epoll(by_recvmsg, sleep_s, waits=waits), stamped)
            for sleep_s, waits, text in (
                (0.001, False, "polled every 1 ms"), (0.002, False, "polled every 2 ms"),
                (0.0005, True, "0.5 ms after the first"), (0.001, True, "1 ms after the first"),
                (0.002, True, "2 ms after the first"),
            )
        ),
        Way("recv_into, half a step after the first", epoll(into, half_step_s)),
        Way("asyncio, streams", by_asyncio),
    ]  # fmt: skip
    absent = []
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, BUSY_POLL, BUSY_POLL_US)
            busy = (*stamped, (BUSY_POLL, BUSY_POLL_US))
            found.append(Way("recvmsg, stamped, SO_BUSY_POLL", epoll(by_recvmsg), busy))
        except OSError as error:
            absent.append(f"SO_BUSY_POLL: not available here: {error}")
    if isinstance(uvloop := library("uvloop", folder), str):
        absent.append(f"uvloop: not available here: {uvloop}")
    else:
        with_uvloop = functools.partial(by_asyncio, factory=uvloop.new_event_loop)
        found.append(Way("uvloop, streams", with_uvloop))
        found.append(Way("uvloop, protocols", functools.partial(with_uvloop, streams=False)))
    uring = library("uring_api", folder)
    reason = uring if isinstance(uring, str) else uring.probe().get("error", "")
    if reason or not uring.probe()["available"]:
        absent.append(f"io_uring: not available here: {reason or 'the kernel refuses it'}")
    else:
        found.append(Way("io_uring, multishot", functools.partial(by_uring, uring=uring)))
    return found, absent
