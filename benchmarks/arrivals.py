"""Checks that requests are sent on time, and independently of each other.

    python benchmarks/arrivals.py --rate 300 --seconds 40

Independent requests (Poisson) are sent to a server that answers each at once. Prints the index of
dispersion of the real sending times, which is 1 for such a process (Cox and Lewis, 1966), and the
delays. Exits 1 if the index differs from 1 by more than 5 %, or if p99 of the delay is 2 ms or
more.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers import running
from servers.raw import RawServer, send_answer

from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.latency import percentile
from pytest_vllm_gates.load.requests import poisson
from pytest_vllm_gates.load.types import PlannedRequest

EACH = 1.5
"""Requests in a bin, on average: a small number gives many bins."""
DISPERSION_LIMIT = 0.05
LATE_LIMIT_MS = 2.0


def dispersion(times: list[float], rate: float) -> float:
    """Return the variance of the counts in equal bins, as a share of their mean."""
    width = EACH / rate
    counts = [0] * int(max(times) / width)
    for sent_at in times:
        if sent_at < width * len(counts):
            counts[int(sent_at / width)] += 1
    return statistics.variance(counts) / statistics.mean(counts)


def main() -> int:
    """Send requests; return when they were sent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    times = poisson(options.rate, int(options.rate * options.seconds), "arrivals")
    requests = [
        PlannedRequest(str(number), "/", b"{}", due_s) for number, due_s in enumerate(times)
    ]
    with running(RawServer(send_answer, backlog=512)) as server:
        load = measure(server.endpoint, requests)
    if broken := [request.error for request in map(answered, load.raws) if request.error]:
        raise SystemExit(f"{len(broken)} of {len(times)} were not answered: {broken[0]}")
    sent_s = [raw.sent_s for raw in load.raws if raw.sent_s is not None]
    late = [1000 * (raw.sent_s - raw.intended_s) for raw in load.raws if raw.sent_s is not None]
    index, planned = dispersion(sent_s, options.rate), dispersion(times, options.rate)
    late_ms = percentile(late, 0.99)
    bins = int(max(times) * options.rate / EACH)
    print(
        f"{len(sent_s)} requests at {len(sent_s) / max(sent_s):.1f} of {options.rate:g} a second: "
        f"index of dispersion {index:.3f} (planned {planned:.3f}, chance alone "
        f"±{math.sqrt(2 / bins):.3f}), "
        f"late p50 {percentile(late, 0.5):.2f} ms, p99 {late_ms:.2f} ms"
    )
    return 0 if abs(index - 1) <= DISPERSION_LIMIT and late_ms < LATE_LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
