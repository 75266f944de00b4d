"""Checks the measuring client's latencies while 512 streams burst at once.

    python benchmarks/bursts.py --rounds 3

A scripted server sends a chunk to each of 512 streams at once, every 80 ms and one time in five
up to 120 ms later, and records the sending times: these are the truth, even if it was late itself.
Prints p99 of the inter-token latency by the measuring client and by `vllm bench serve`, in turns. A
chunk has 1 to 4 tokens, as with speculative decoding. The measuring client divides the time since
the previous chunk among them; bench serve counts the chunk as one token. Each is compared with the
sending times by its own definition; with `--tokens 1` the definitions are the same. The lag is the
longest time that data waited unread in the kernel: if a busy machine delays the client by more than
the time between two chunks, the client sees one time for both. Exits 1 if the measuring client's
median differs by more than 5 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import bench_serve  # type: ignore[import-not-found, unused-ignore]
from servers import running
from servers.raw import Timetable, TimetableServer, gaps

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.latency import latency, percentile
from pytest_vllm_gates.load.requests import Maker

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

STREAMS = 512
EVERY_S = 0.08
STALL_SHARE, STALL_S = 0.2, 0.12
TOKENS_TOGETHER = 4
CHUNKS = 80
"""The approximate number for each stream."""
PROMPT_TOKENS = 32
LIMIT = 0.05


def measure_ours(endpoint: Endpoint, tokens: int) -> tuple[float, float]:
    """Return p99 of the inter-token latency by the measuring client, and its lag, in ms."""
    lengths = {"prompt_tokens": [PROMPT_TOKENS] * 2, "output_tokens": [tokens] * 2}
    prompt = range(8 * PROMPT_TOKENS)
    maker = Maker(endpoint, planned_traffic(lengths, {"shared": 0.0}), prompt)
    load = measure(endpoint, maker.make("bursts", [None] * STREAMS).planned, STREAMS)
    answers = [answered(raw) for raw in load.raws]
    if broken := [answer.error for answer in answers if answer.error]:
        raise SystemExit(broken[0])
    itl_s = [gap for measured in map(latency, answers) if measured for gap in measured.itl_s]
    return _p99_ms(itl_s), 1000 * max(raw.lag_s for raw in load.raws)


def _p99_ms(values: list[float]) -> float:
    return 1000 * percentile(values, 0.99)


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=TOKENS_TOGETHER, help="the most in a chunk")
    options = parser.parse_args()
    peer = bench_serve.of_lane()
    timetable = Timetable(
        STREAMS, EVERY_S, most_tokens=options.tokens, stall_share=STALL_SHARE, stall_s=STALL_S
    )
    tokens = CHUNKS * (1 + options.tokens) // 2
    own_pairs, other_pairs = [], []
    with tempfile.TemporaryDirectory() as folder, running(TimetableServer(timetable)) as server:
        flags = peer.flags(
            server.endpoint, requests=STREAMS, users=STREAMS,
            prompt_tokens=PROMPT_TOKENS, output_tokens=tokens,
        )  # fmt: skip
        for _ in range(options.rounds):
            p99_ms, lag_ms = measure_ours(server.endpoint, tokens)
            shared = [gap / n for gap, n in gaps(server.sent()) for _ in range(n)]
            own_pairs.append((p99_ms, _p99_ms(shared)))
            p99_ms = peer.run(server.endpoint, flags, Path(folder))["p99_itl_ms"]
            other_pairs.append((p99_ms, _p99_ms([gap for gap, _ in gaps(server.sent())])))
            own_line = f"{_line('ours', *own_pairs[-1])}, lag {lag_ms:.1f} ms"
            print(f"{own_line}   {_line('vllm bench serve', *other_pairs[-1])}", flush=True)
    off, peers_off = (
        statistics.median(p99_ms / truth - 1 for p99_ms, truth in pairs)
        for pairs in (own_pairs, other_pairs)
    )
    print(
        f"medians of {options.rounds}: ours {off:+.1%} (at most {LIMIT:.0%}), vllm bench serve "
        f"{peers_off:+.1%}"
    )
    return 0 if abs(off) <= LIMIT else 1


def _line(name: str, p99_ms: float, truth: float) -> str:
    return f"{name} p99 {p99_ms:6.1f} ms of {truth:6.1f} ms sent ({p99_ms / truth - 1:+.1%})"


if __name__ == "__main__":
    sys.exit(main())
