"""Keeps one server up after the end of the run that booted it.

The keeper is a separate program, with only the standard library and `process.py`
(`python -I -S keeper.py`), because the installed packages may change while it runs. It reads an
order, one line of JSON, from its standard input: the command to start, its environment, its log,
and the folder of the kept server. It starts the command under a guard and prints the guard's id.
Until the order to keep the server comes, the end of its input ends the server. From then on the
server ends after the idle time that its `hold` allows, when this program gets SIGTERM, when its
record or folder is removed, or by itself.

It leaves its starter's process group, so a terminal's Ctrl-C does not reach it. It does not start
a new session, for the reason that `guard.py` gives.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if __name__ == "__main__":
    # At the end: no module beside the package may replace one of the standard library.
    sys.path.append(str(Path(__file__).parents[3]))

from pytest_vllm_gates.descriptors import readable
from pytest_vllm_gates.process.process import ORPHANED_GRACE_S, GuardedProcess, started
from pytest_vllm_gates.server.kept import private
from pytest_vllm_gates.server.kept.hold import Hold

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD = "record.json"
ENDED = "ended.json"
NOT_KEPT = "not_kept"
POLL_S = 0.05
LOOK_S = 0.5
ASK_S = 5.0
MOST_BYTES = 16 * 2**20
"""Some engines' metrics have a hundredth of that."""
# They change when a request is served; vLLM does not count requests to /metrics or /health.
MOVING = ("http_requests_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
          "vllm:num_requests_running", "vllm:num_requests_waiting")  # fmt: skip


class Orders:
    """Lines from a file descriptor."""

    def __init__(self, handle: int) -> None:
        """No order is read yet."""
        self._handle = handle
        self._rest = b""

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next order: an empty one for the end, None for none within the time."""
        while b"\n" not in self._rest:
            if not readable([self._handle], timeout_s):
                return None
            piece = os.read(self._handle, 2**16)
            if not piece:
                return {}
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        order: dict[str, Any] = json.loads(line)
        return order


def booted(process: GuardedProcess, orders: Orders) -> dict[str, Any] | None:
    """Wait for the order to keep the server and return it; None if the server has ended."""
    while process.poll() is None:
        order = orders.next(POLL_S)
        if order is None:
            continue
        if "keep" in order:
            return order
        process.stop(order.get("stop", ORPHANED_GRACE_S))
    return None


def keep(process: GuardedProcess, hold: Hold, base_url: str, key: str) -> bool:
    """Wait until the server ends or is to end; return whether it ended by itself."""
    record = hold.path.with_name(RECORD)
    signals = {signal.SIGTERM, signal.SIGCHLD}
    # Only now: a child process inherits the blocked signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    last_used, requests_served = time.monotonic(), None
    while process.poll() is None:
        got = signal.sigtimedwait(signals, LOOK_S)
        if not record.exists() or (got and got.si_signo == signal.SIGTERM):
            return False
        now = time.monotonic()
        if hold.held():
            last_used, requests_served = now, None
            with contextlib.suppress(OSError):
                os.utime(hold.path)
            continue
        if requests_served is None:
            requests_served = served(base_url, key)
        if now - last_used < hold.idle_limit_s or not hold.acquire(0):
            continue
        # Its owner may have sent it requests without a run.
        served_since, requests_served = requests_served, served(base_url, key)
        if requests_served == served_since:
            return False
        last_used = now
        hold.release()
    return True


def served(base_url: str, key: str) -> float:
    """Return a figure that changes with every request served; 0 if the server has none.

    The answer may take 5 seconds in all, and have 16 MiB: a server that drips does not block this
    program.
    """
    url = urlsplit(base_url)
    lines = (
        "GET /metrics HTTP/1.0",  # the answer comes in no chunks and ends with the connection
        f"Host: {url.netloc}",
        "Connection: close",
        f"Authorization: Bearer {key}",
    )
    request = "".join(f"{line}\r\n" for line in (*lines, ""))
    try:
        answer = _exchanged((url.hostname or "", url.port or 80), request.encode())
    except OSError:
        return 0.0
    head, _, body = answer.decode("utf-8", "replace").partition("\r\n\r\n")
    is_ok = head.split(maxsplit=2)[1:2] == ["200"]
    return sum(_values(body.splitlines())) if is_ok else 0.0


def _exchanged(address: tuple[str, int], request: bytes) -> bytes:
    """Return the answer until the connection ends; raises `OSError` beyond the limits."""
    deadline = time.monotonic() + ASK_S
    answer = bytearray()
    with socket.create_connection(address, timeout=ASK_S) as connection:
        connection.sendall(request)
        while True:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            piece = connection.recv(2**16)
            answer += piece
            if not piece:
                return bytes(answer)
            if len(answer) > MOST_BYTES or time.monotonic() > deadline:
                raise OSError("the answer is too long or too slow")


def _values(lines: Iterable[str]) -> Iterable[float]:
    for line in lines:
        name, _, value = line.rpartition(" ")
        if name.partition("{")[0] in MOVING:
            with contextlib.suppress(ValueError):
                number = float(value)
                if math.isfinite(number):  # NaN would differ from itself for ever
                    yield number


def leave() -> None:
    """Go on as an orphan, out of reach of the starter's terminal."""
    if os.fork():
        os._exit(0)
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")


def main() -> None:
    """Carry out one order."""
    leave()
    orders = Orders(0)
    order = orders.next(ASK_S)
    if not order:
        return
    folder = Path(order["folder"])
    process = GuardedProcess(
        order["argv"], env=order["env"], log=Path(order["log"]), cwd=Path(order["cwd"])
    )
    ids = {"server": process.pid, "keeper": os.getpid()}
    print(json.dumps({name: [pid, started(pid)] for name, pid in ids.items()}), flush=True)
    hold, died = Hold(folder), False
    while keep_order := booted(process, orders):
        try:
            private.write(folder / RECORD, json.dumps(keep_order["keep"]))
        except OSError as error:
            print(json.dumps({NOT_KEPT: str(error)}), flush=True)
            continue  # the server serves the run that booted it
        print(json.dumps("kept"), flush=True)
        died = keep(
            process, hold, keep_order["keep"]["base_url"], order["env"].get("VLLM_API_KEY", "")
        )
        break
    status = process.stop()
    # The run that uses it clears the rest; a server that died unused has to be reported.
    if died or not hold.acquire(0):
        with contextlib.suppress(OSError):
            private.write(folder / ENDED, json.dumps({"status": status, "at": time.time()}))
    else:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
