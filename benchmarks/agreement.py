"""Whether the measuring client and `vllm bench serve` find the same of the same server.

    python benchmarks/agreement.py --rounds 5

A miniature is booted, and both drive it in turns: two requests a second whatever is still under
way, prompts of 128 tokens, answers of 48, a third of what it can do. Were the next request sent
when one has ended, the clients would differ by what each takes of the processors it shares with the
server and by how soon it sends again (on two cores vllm bench serve then found 1 to 7 % less).
Printed are the output tokens per second and the median times to first token and between tokens of
each. Exits 1 when the medians of tokens per second differ by more than 3 %.
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
"""Requests per second, evenly: the first after half a second, as vllm bench serve does."""
REQUESTS = 40
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 48
LIMIT = 0.03

Figures = tuple[float, float, float]
"""Output tokens per second; medians of TTFT and ITL in ms."""


def ours(endpoint: Endpoint, maker: Maker, seed: str) -> Figures:
    """Measure with the client."""
    requests = maker.make(seed, [number / RATE for number in range(1, REQUESTS + 1)])
    driven = measure(endpoint, requests.planned)
    answers = [answered(raw) for raw in driven.raws]
    if broken := [answer.error for answer in answers if answer.error]:
        raise SystemExit(broken[0])
    times = [entry for entry in map(latency, answers) if entry]
    return (
        sum(answer.output_tokens for answer in answers) / driven.took_s,
        1000 * statistics.median(moment.ttft_s for moment in times),
        1000 * statistics.median(gap for moment in times for gap in moment.itl_s),
    )


def theirs(peer: bench_serve.BenchServe, endpoint: Endpoint, folder: Path) -> Figures:
    """Measure with `vllm bench serve`."""
    flags = peer.flags(
        endpoint, requests=REQUESTS, users=REQUESTS,
        prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS,
    )  # fmt: skip
    found = peer.run(endpoint, [*flags, f"--request-rate={RATE:g}", "--burstiness=inf"], folder)
    return found["output_throughput"], found["median_ttft_ms"], found["median_itl_ms"]


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    peer = bench_serve.of_lane()
    same = {"prompt_tokens": [PROMPT_TOKENS] * 2, "output_tokens": [OUTPUT_TOKENS] * 2}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = boot(MODEL, folder)
        try:
            endpoint = server.boot.endpoint
            assert endpoint  # noqa: S101 - or it had ended
            text = token_ids(endpoint, long_context_types.load(), 8 * PROMPT_TOKENS)
            maker = Maker(endpoint, planned_traffic(same, {"shared": 0.0}), text)
            ours(endpoint, maker, "warm-up")
            pairs: list[tuple[Figures, Figures]] = []
            for number in range(rounds):
                pairs.append(
                    (
                        ours(endpoint, maker, f"round-{number}"),
                        theirs(peer, endpoint, folder),
                    )
                )
                print("   ".join(map(_line, ("ours", "vllm bench serve"), pairs[-1])), flush=True)
        finally:
            server.stop()
    own, other = (_medians([pair[who] for pair in pairs]) for who in range(2))
    apart = own[0] / other[0] - 1
    print(f"medians of {rounds}: {_line('ours', own)}   {_line('vllm bench serve', other)}")
    print(f"tokens a second differ by {apart:+.1%} (at most {LIMIT:.0%})")
    return 0 if abs(apart) <= LIMIT else 1


def _medians(several: list[Figures]) -> Figures:
    rates, ttfts, itls = zip(*several, strict=True)
    return statistics.median(rates), statistics.median(ttfts), statistics.median(itls)


def _line(name: str, figures: Figures) -> str:
    rate, ttft, itl = figures
    return f"{name} {rate:6.1f} tokens/s, TTFT {ttft:5.1f} ms, ITL {itl:5.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
