"""Checks that the measuring client and `vllm bench serve` measure the same on the same server.

    python benchmarks/agreement.py --rounds 5

Boots a miniature, and both clients drive it in turns: two requests per second at fixed times,
prompts of 128 tokens, answers of 48, a third of its capacity. If each request were sent when the
previous one ended, the clients would differ in their share of the processors and in how soon they
send again (on two cores vllm bench serve then measured 1 to 7 % less). Prints the output tokens per
second and the median times to first token and between tokens of each. Exits 1 if the medians of
tokens per second differ by more than 3 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import bench_serve  # type: ignore[import-not-found, unused-ignore]
from overhead import MODEL, boot  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.latency import latency
from pytest_vllm_gates.load.requests import Maker
from pytest_vllm_gates.long_context import types as long_context_types
from pytest_vllm_gates.long_context.prompts import token_ids

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

RATE = 2.0
"""Requests per second, evenly; the first comes after half a second, as in vllm bench serve."""
REQUESTS = 40
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 48
LIMIT = 0.03

Figures = tuple[float, float, float]
"""Output tokens per second; medians of TTFT and ITL in ms."""


def measure_ours(endpoint: Endpoint, maker: Maker, seed: str) -> Figures:
    """Measure with the client."""
    requests = maker.make(seed, [number / RATE for number in range(1, REQUESTS + 1)])
    load = measure(endpoint, requests.planned)
    answers = [answered(raw) for raw in load.raws]
    if broken := [answer.error for answer in answers if answer.error]:
        raise SystemExit(broken[0])
    times = [measured for measured in map(latency, answers) if measured]
    return (
        sum(answer.output_tokens for answer in answers) / load.took_s,
        1000 * statistics.median(moment.ttft_s for moment in times),
        1000 * statistics.median(gap for moment in times for gap in moment.itl_s),
    )


def measure_bench_serve(peer: bench_serve.BenchServe, endpoint: Endpoint, folder: Path) -> Figures:
    """Measure with `vllm bench serve`."""
    flags = peer.flags(
        endpoint, requests=REQUESTS, users=REQUESTS,
        prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS,
    )  # fmt: skip
    result = peer.run(endpoint, [*flags, f"--request-rate={RATE:g}", "--burstiness=inf"], folder)
    return result["output_throughput"], result["median_ttft_ms"], result["median_itl_ms"]


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    peer = bench_serve.of_lane()
    lengths = {"prompt_tokens": [PROMPT_TOKENS] * 2, "output_tokens": [OUTPUT_TOKENS] * 2}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = boot(MODEL, folder)
        try:
            endpoint = server.boot.endpoint
            assert endpoint  # noqa: S101 - or it had ended
            tokens = token_ids(endpoint, long_context_types.load(), 8 * PROMPT_TOKENS)
            maker = Maker(endpoint, planned_traffic(lengths, {"shared": 0.0}), tokens)
            measure_ours(endpoint, maker, "warm-up")
            pairs: list[tuple[Figures, Figures]] = []
            for number in range(rounds):
                pairs.append(
                    (
                        measure_ours(endpoint, maker, f"round-{number}"),
                        measure_bench_serve(peer, endpoint, folder),
                    )
                )
                print("   ".join(map(_line, ("ours", "vllm bench serve"), pairs[-1])), flush=True)
        finally:
            server.stop()
    own_medians, other_medians = (_medians([pair[side] for pair in pairs]) for side in range(2))
    difference = own_medians[0] / other_medians[0] - 1
    print(
        f"medians of {rounds}: {_line('ours', own_medians)}   "
        f"{_line('vllm bench serve', other_medians)}"
    )
    print(f"tokens a second differ by {difference:+.1%} (at most {LIMIT:.0%})")
    return 0 if abs(difference) <= LIMIT else 1


def _medians(several: list[Figures]) -> Figures:
    rates, ttfts, itls = zip(*several, strict=True)
    return statistics.median(rates), statistics.median(ttfts), statistics.median(itls)


def _line(name: str, figures: Figures) -> str:
    rate, ttft, itl = figures
    return f"{name} {rate:6.1f} tokens/s, TTFT {ttft:5.1f} ms, ITL {itl:5.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
