"""Stops a server, or ends its engine, while streams are open, and watches all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CHAT
from pytest_vllm_gates.lifecycle.types import (
    GRACE_S,
    StoppedServer,
    StoppedStream,
    StoppingProbe,
    StreamEnd,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

STREAMS = 4
TOKENS = 256
"""The tokens of each stream: enough to be open for a while, and over within a drain."""
BEGUN_EVENTS = 4
"""Events that each stream has received when the server is stopped."""
BEGIN_S = 60.0
LOOK_S = 0.25
PROBE_S = 2.0
DONE = "data: [DONE]"
ENGINE = "VLLM::Engine"


def stop(
    endpoint: Endpoint,
    body: Mapping[str, Any],
    pid: int,
    number: int = signal.SIGTERM,
    watched_pid: int | None = None,
) -> StoppedServer:
    """Open streams of a chat's body, send a signal to a process, and watch for the grace period.

    `watched_pid` is the process that has to end, if it is another one. Raises
    `httpx.HTTPError` if the streams do not begin.
    """
    ending = watched_pid or pid
    watched = [_Stream(endpoint, body) for _ in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        for stream in watched:
            pool.submit(stream.read)
        deadline = time.monotonic() + BEGIN_S
        while any(not stream.begun for stream in watched):
            over = [stream for stream in watched if stream.error]
            if over or time.monotonic() > deadline:
                for stream in watched:
                    stream.close()
                raise httpx.ReadError(over[0].error if over else "no stream begins")
            time.sleep(LOOK_S / 10)
        told = time.monotonic()
        os.kill(pid, number)
        probes, gone_s = [], None
        while (at_s := time.monotonic() - told) < GRACE_S:
            if not _is_there(ending):
                gone_s = at_s
                break
            probes.append(_probe(endpoint, body, at_s))
            time.sleep(LOOK_S)
        ended = [stream.ended(told) for stream in watched]
        for stream in watched:
            stream.close()
    return StoppedServer(tuple(ended), tuple(probes), gone_s)


def _is_there(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def _probe(endpoint: Endpoint, body: Mapping[str, Any], at_s: float) -> StoppingProbe:
    def status(method: str, path: str, sent: Mapping[str, Any] | None = None) -> int | None:
        try:
            with http.client(endpoint) as client:
                return client.request(method, path, json=sent, timeout=PROBE_S).status_code
        except httpx.HTTPError:
            return None

    # The health afterwards: a server that refuses a request must not report itself ready.
    chat = status("POST", CHAT, {"model": endpoint.model, **body, "max_tokens": 1})
    return StoppingProbe(round(at_s, 2), status("GET", "/health"), chat)


def engines(processes: Iterable[int]) -> list[int]:
    """Return which processes are engines of vLLM, by the names that they give themselves.

    `VLLM::EngineCore`, of which the kernel keeps 15 characters (0.27 to 0.32,
    `vllm/v1/engine/core.py`).
    """
    found = []
    for pid in processes:
        with contextlib.suppress(OSError):
            if ENGINE in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8"):
                found.append(pid)
    return found


class _Stream:
    """A stream that is read until it ends, or is closed."""

    def __init__(self, endpoint: Endpoint, body: Mapping[str, Any]) -> None:
        self._endpoint = endpoint
        self._request = {
            "model": endpoint.model, **body, "max_tokens": TOKENS, "ignore_eos": True,
            "stream": True,
        }  # fmt: skip
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._lines: list[str] = []
        self._over_at: float | None = None
        self.error = ""
        """Why it broke off; empty if it did not."""

    @property
    def begun(self) -> bool:
        """Whether it has had its first events."""
        return len(self._lines) >= BEGUN_EVENTS

    def read(self) -> None:
        """Read to the end."""
        limits = httpx.Timeout(BEGIN_S + GRACE_S + PROBE_S)
        try:
            with (
                http.client(self._endpoint) as client,
                client.stream("POST", CHAT, json=self._request, timeout=limits) as reply,
            ):
                self._socket = reply.extensions["network_stream"].get_extra_info("socket")
                if not reply.is_success:
                    self.error = f"answered {reply.status_code}"
                    return
                for line in reply.iter_lines():
                    if line:
                        self._lines.append(line)
        except Exception as error:  # noqa: BLE001 - whatever the client trips over ends the stream
            self.error = f"{type(error).__name__}: {error}"
        finally:
            with self._lock:
                self._over_at = time.monotonic()

    def ended(self, since: float) -> StoppedStream:
        """Return how it has ended so far."""
        with self._lock:
            over_at, lines = self._over_at, [*self._lines]
        last = lines[-1] if lines else ""
        seconds = round((over_at or time.monotonic()) - since, 2)
        if over_at is None:
            return StoppedStream(StreamEnd.HANGS, len(lines), last, seconds)
        told = next((line for line in reversed(lines) if line.startswith('data: {"error"')), "")
        if told or self.error:
            return StoppedStream(StreamEnd.ERROR, len(lines), self.error or told, seconds)
        finished = any('"finish_reason":"' in line.replace(" ", "") for line in lines)
        whole = last == DONE and finished
        end = StreamEnd.WHOLE if whole else StreamEnd.CUT
        return StoppedStream(end, len(lines), last, seconds)

    def close(self) -> None:
        """Hang up, so that its reader ends."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)
