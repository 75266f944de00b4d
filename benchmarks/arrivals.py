"""Whether requests go out when they should, as independently as they should.

    python benchmarks/arrivals.py --rate 300 --seconds 40

Requests that come independently (Poisson) are sent to a server that answers each at once. Printed
are the index of dispersion of the times at which they really went out, which is 1 for such a
process (Cox and Lewis, 1966), and by how much they were late. Exits 1 when the index is more than
5 % off, or p99 of the lateness is 2 ms or more.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import statistics
import sys
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.latency import percentile
from pytest_vllm_gates.load.requests import poisson
from pytest_vllm_gates.load.types import PlannedRequest

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b"data: [DONE]\n\n"
)
EACH = 1.5
"""Requests in a bin, on average: few, so that there are many bins."""
DISPERSION_LIMIT = 0.05
LATE_LIMIT_MS = 2.0


def serve(ports: Queue[int]) -> None:
    """Answer everything at once, in a process of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def dispersion(times: list[float], rate: float) -> float:
    """Return the variance of the counts in equal bins, as a share of their mean."""
    width = EACH / rate
    counts = [0] * int(max(times) / width)
    for at in times:
        if at < width * len(counts):
            counts[int(at / width)] += 1
    return statistics.variance(counts) / statistics.mean(counts)


def main() -> int:
    """Send, and say when."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    ports: Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    endpoint = Endpoint(f"http://127.0.0.1:{ports.get(timeout=30)}/v1", "none")
    times = poisson(options.rate, int(options.rate * options.seconds), "arrivals")
    requests = [PlannedRequest(str(number), "/", b"{}", at) for number, at in enumerate(times)]
    driven = measure(endpoint, requests)
    server.terminate()
    if broken := [request.error for request in map(answered, driven.raws) if request.error]:
        raise SystemExit(f"{len(broken)} of {len(times)} were not answered: {broken[0]}")
    sent = [raw.sent_s for raw in driven.raws if raw.sent_s is not None]
    late = [1000 * (raw.sent_s - raw.intended_s) for raw in driven.raws if raw.sent_s is not None]
    index, planned = dispersion(sent, options.rate), dispersion(times, options.rate)
    late_ms = percentile(late, 0.99)
    bins = int(max(times) * options.rate / EACH)
    print(
        f"{len(sent)} requests at {len(sent) / max(sent):.1f} of {options.rate:g} a second: index of "
        f"dispersion {index:.3f} (planned {planned:.3f}, chance alone ±{math.sqrt(2 / bins):.3f}), "
        f"late p50 {percentile(late, 0.5):.2f} ms, p99 {late_ms:.2f} ms"
    )
    return 0 if abs(index - 1) <= DISPERSION_LIMIT and late_ms < LATE_LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
