"""Measures what reading a streamed chunk costs, for each way of reading it.

    python benchmarks/reading.py --rounds 5 [--streams 64] [--seconds 4]

The scripted server of `client_cost.py` sends a chunk to each of 64 streams every 25 ms. Each way
reads the same streams in turns, drops the data, and keeps the time of each read. In every round it
reads for one second and for `--seconds` more; the additional user and system time of the process is
divided by the additional chunks. Prints for each way:

- its cost of a chunk, the median of the rounds,
- how late the chunk's time is at p99: the kernel's stamp where the way has one, else the time of
  the read, less the time at which the server sent the chunk,
- how late the read itself is at p99,
- how many chunks a read has: more than about 1 if the machine was too busy to read in time.

"the client's loop" is the real one, which keeps the data; the client's way is its reading alone.
The least that a read takes is the cost of the cheapest way that reads every chunk by itself. The
way that waits for half a step has no wake-ups: it finds all streams readable at once. Libraries
that this environment lacks are installed into a temporary folder. At the end follows the parsing of
a chunk, apart from reading.
Exits 1 if a way whose times are less than 1 ms late costs 15 % less than the client's way.
"""

from __future__ import annotations

import argparse
import gc
import math
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from client_cost import (  # type: ignore[import-not-found, unused-ignore]
    EVERY_S,
    STREAMS,
    planned_requests,
)
from pydantic_core import from_json
from reading_ways import (  # type: ignore[import-not-found, unused-ignore]
    CLIENTS,
    by_client,
    by_way,
    library,
    ways,
)
from servers import running
from servers.raw import Timetable, TimetableServer

from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.generator.socket_client import TIMESPEC, Target, stamping
from pytest_vllm_gates.load.latency import percentile
from pytest_vllm_gates.load.types import RawResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reading_ways import Arrivals, Reads, Way

    from pytest_vllm_gates.load.types import PlannedRequest

SHORT_S = 1.0
LATE_MS, CHEAPER = 1.0, 0.15
MORE_THAN_ONE = 1.05
PARSES = 20
CLIENT = "the client's loop"
CHUNK_END = re.compile(rb"\n\n\r\n")


def arrivals(reads: Reads, *, stamped: bool) -> Arrivals:
    """Return a stream's arrivals by the kernel's stamps, or by the times of the reads."""
    size, times = 0, []
    for at, stamps, read in reads:
        size += read
        if stamped and stamps:
            seconds, nanoseconds = TIMESPEC.unpack(stamps[0][2])
            times.append((seconds + nanoseconds * 1e-9, size))
        else:
            times.append((at, size))
    return times


def late_s(times: Arrivals, ends: Sequence[int], sent: Sequence[float]) -> list[float]:
    """Return how long after its sending each chunk arrived; `ends`: where each ends."""
    late, reads = [], iter(times)
    at, size = next(reads)
    for end, sent_s in zip(ends, sent, strict=True):
        while size < end:
            at, size = next(reads)
        late.append(at - sent_s)
    return late


class Figures(NamedTuple):
    """What one way costs, how late it is at p99, and how many chunks a read had."""

    us: float
    stamp_ms: float
    read_ms: float
    chunks_a_read: float


def middle(figures: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    return Figures(*map(statistics.median, zip(*figures, strict=True)))


def line(name: str, figures: Figures) -> str:
    """Return a way's line; the client's loop does not keep the times of its reads."""
    read = "" if math.isnan(figures.read_ms) else f"{figures.read_ms:.2f} ms"
    return (
        f"{name:39} {figures.us:5.2f} us/chunk  p99 late: stamp {figures.stamp_ms:5.2f} ms, read "
        f"{read or 'unknown':>8}  {figures.chunks_a_read:.2f} chunks/read"
    )


def summary(medians: dict[str, Figures]) -> tuple[str, bool]:
    """Return the last line, and whether no admissible way is much cheaper than the client's."""
    client_us, its_way_us = medians[CLIENT].us, medians[CLIENTS].us
    ways_of_all = {name: figures for name, figures in medians.items() if name != CLIENT}
    least_us = min(
        figures.us for figures in ways_of_all.values() if figures.chunks_a_read < MORE_THAN_ONE
    )
    least_ms = min(figures.stamp_ms for figures in ways_of_all.values())
    admissible = {
        name: figures.us
        for name, figures in ways_of_all.items()
        if figures.stamp_ms - least_ms < LATE_MS
    }
    best = min(admissible, key=lambda name: admissible[name])
    saved = 1 - admissible[best] / its_way_us
    return (
        f"a read takes {least_us:.1f} us at least, the client's way {its_way_us:.1f} us, its whole "
        f"loop {client_us:.1f} us ({client_us / least_us:.1f} times the least); the cheapest way "
        f"less than {LATE_MS:g} ms late ({best}) takes {saved:.0%} less than the client's way (at "
        f"most {CHEAPER:.0%})"
    ), saved <= CHEAPER


def parsing(answer: bytes, chunks: int, folder: str) -> list[str]:
    """Return a line for each way of parsing an answer, apart from reading."""
    raw = RawResponse("parsing", 0.0, 0.0, 1.0, answer, ((1.0, len(answer)),))
    assert answered(raw).output_tokens == chunks  # noqa: S101
    events = [piece.partition(b"data: ")[2].strip() for piece in CHUNK_END.split(answer)[:chunks]]
    parsers: dict[str, Callable[[], object]] = {
        "the client's parser, with its framing": lambda: answered(raw),
        "pydantic_core's JSON alone": lambda: [counted(from_json(event)) for event in events],
    }
    lines = []
    if isinstance(orjson := library("orjson", folder), str):
        lines.append(f"orjson: not available here: {orjson}")
    else:
        parsers["orjson's JSON alone"] = lambda: [counted(orjson.loads(event)) for event in events]
    if isinstance(httptools := library("httptools", folder), str):
        lines.append(f"httptools: not available here: {httptools}")
    else:
        parsers["httptools' framing alone"] = lambda: Bodies(httptools).feed(answer)
    for name, parse in parsers.items():
        times = []
        for _ in range(PARSES):
            began_s = time.process_time()
            parse()
            times.append(1e6 * (time.process_time() - began_s) / chunks)
        lines.append(f"parsing: {name:30} {statistics.median(times):5.2f} us/chunk")
    return lines


def counted(event: dict[str, Any]) -> tuple[int, int]:
    """Return what the client reads of a chunk: the tokens so far, and the chunk's token ids."""
    return event["usage"]["completion_tokens"], len(event["choices"][0]["token_ids"])


class Bodies:
    """Keeps the chunks that httptools finds in an answer."""

    def __init__(self, httptools: Any) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.bodies: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        """Keep a chunk."""
        self.bodies.append(body)

    def feed(self, answer: bytes) -> None:
        """Read an answer."""
        self._parser.feed_data(answer)


class Measurement:
    """Reads loads of the scripted server, each in one way."""

    def __init__(self, server: TimetableServer, streams: int, long: int) -> None:
        """`long`: the chunks of a long load."""
        self._server, self._streams, self._long = server, streams, long
        url = urlsplit(server.endpoint.base_url)
        assert url.hostname and url.port  # noqa: S101
        self._target = Target(url.hostname, url.port, {"Content-Type": "application/json"})
        self.answer = self._client(long)[2]
        server.sent()
        self._ends = [match.end() for match in CHUNK_END.finditer(self.answer)][:long]

    def figures(self, way: Way | None) -> Figures:
        """Return what a way costs, None for the client, and how late it is."""
        short = round(SHORT_S / EVERY_S)
        by_read: list[Arrivals] = []
        if way is None:
            short_s, _, _ = self._client(short)
            self._server.sent()
            long_s, stamped, _ = self._client(self._long)
        else:
            short_s, _ = by_way(way, self._requests(short), self._target)
            self._server.sent()
            long_s, notes = by_way(way, self._requests(self._long), self._target)
            stamped, by_read = (
                [arrivals(reads, stamped=stamped) for reads in notes] for stamped in (True, False)
            )
        sent = [*zip(*(step.times for step in self._server.sent()), strict=True)]
        late, read_late = (
            [
                late
                for times, own in zip(each, sent, strict=bool(each))
                for late in late_s(times, self._ends, own)
            ]
            for each in (stamped, by_read)
        )
        us = 1e6 * (long_s - short_s) / (self._streams * (self._long - short))
        read_ms = 1000 * percentile(read_late, 0.99) if read_late else math.nan
        chunks = len(late) / sum(map(len, stamped))
        return Figures(us, 1000 * percentile(late, 0.99), read_ms, chunks)

    def _requests(self, tokens: int) -> Sequence[PlannedRequest]:
        planned: Sequence[PlannedRequest] = planned_requests(self._server.endpoint, tokens)
        return planned[: self._streams]

    def _client(self, tokens: int) -> tuple[float, list[Arrivals], bytes]:
        requests = self._requests(tokens)
        began_s = time.process_time()
        stamped, answer = by_client(requests, self._target)
        return time.process_time() - began_s, stamped, answer


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=STREAMS, help=f"at most {STREAMS}")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    long = round((SHORT_S + options.seconds) / EVERY_S)
    gc.disable()  # as the client does
    _stamped = stamping()  # until the end
    with (
        tempfile.TemporaryDirectory() as folder,
        running(TimetableServer(Timetable(options.streams, EVERY_S))) as server,
    ):
        sys.path.append(folder)
        found, absent = ways(folder, EVERY_S / 2)
        measurement = Measurement(server, options.streams, long)
        figures: dict[str, list[Figures]] = {}
        for _ in range(options.rounds):
            for way in (None, *found):
                name = way.name if way else CLIENT
                figures.setdefault(name, []).append(measurement.figures(way))
        medians = {name: middle(each) for name, each in figures.items()}
        for name, each in medians.items():
            print(line(name, each), flush=True)
        print("\n".join([*absent, *parsing(measurement.answer, long, folder)]))
    sentence, kept = summary(medians)
    print(f"medians of {options.rounds}: {sentence}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
