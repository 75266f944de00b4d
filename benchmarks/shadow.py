"""Measures `vllm-gates shadow`: how often it is wrong, how soon it rejects, what it costs clients.

    python benchmarks/shadow.py alarms --runs 100 --pairs 5000
    python benchmarks/shadow.py power --runs 100 --pairs 500 --broken 0.01
    python benchmarks/shadow.py traffic --rate 200 --seconds 60
    python benchmarks/shadow.py traffic --rate 200 --seconds 60 --canary hangs

`alarms` and `power` look after every pair, as the shadow may. `traffic` sends chats, every other
one streamed, to a fake server directly and then through a shadow, compares every byte, and prints
the latency of both. It wants an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers import running
from shadow.shadow_servers import CHAT, Chats, shadow

from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.decide import HOLD, Question, decide
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement, Tally

SETTINGS = shadow_settings.load()


def judged_pair(drawn: random.Random, soft: float, broken: float, slower: float) -> PairJudgement:
    """Return a pair; both sides fail a soft kind, the canary a hard one as often as `broken`."""

    def side(hard: float, ratio: float) -> SideJudgement:
        kinds = {"call": "a call"} if drawn.random() < soft else {}
        if drawn.random() < hard:
            kinds["forced_call"] = "no call"
        figures = {
            "ttft_s": ratio * drawn.lognormvariate(-2.3, 0.4),
            "itl_s": ratio * drawn.lognormvariate(-4, 0.1),
            "tokens": float(drawn.randint(5, 400)),
        }
        return SideJudgement(kinds, figures)

    return PairJudgement(side(0.0, 1.0), side(broken, slower))


def first_decision(
    seed: int, pairs: int, soft: float, broken: float, *, rejects_only: bool
) -> tuple[str, int]:
    """Return the first answer that is not HOLD, and after how many pairs; look after each."""
    drawn = random.Random(seed)  # noqa: S311 - a simulation
    tally = Tally(SETTINGS.kinds, SETTINGS.figures)
    for number in range(1, pairs + 1):
        tally.add(judged_pair(drawn, soft, broken, 1.0))
        promotion = decide(tally, SETTINGS, Question()).promotion
        if promotion == "REJECT" or (promotion != HOLD and not rejects_only):
            return promotion, number
    return HOLD, pairs


def simulate(options: argparse.Namespace) -> int:
    """Print how many runs are rejected, and after how many pairs."""
    broken = options.broken if options.what == "power" else 0.0
    ends = [
        first_decision(seed, options.pairs, options.soft, broken, rejects_only=True)
        for seed in range(options.runs)
    ]
    rejected = [number for promotion, number in ends if promotion == "REJECT"]
    print(
        json.dumps(
            {
                "what": options.what, "runs": options.runs, "pairs": options.pairs,
                "broken": broken, "soft": options.soft, "rejected": len(rejected),
                "median_pairs": statistics.median(rejected) if rejected else None,
            }
        )
    )  # fmt: skip
    return 0


def chat_body(*, stream: bool) -> bytes:
    """Return a chat's body."""
    body: dict[str, Any] = {"model": "m", "messages": [], "temperature": 0, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


async def send(
    session: aiohttp.ClientSession, url: str, options: argparse.Namespace
) -> tuple[list[float], set[bytes]]:
    """Send at the rate; return the seconds of each answer, and every body that came."""
    seconds: list[float] = []
    bodies: set[bytes] = set()

    async def one(number: int) -> None:
        begun = time.perf_counter()
        async with session.post(
            url + CHAT, data=chat_body(stream=number % 2 == 1),
            headers={"Content-Type": "application/json"},
        ) as reply:  # fmt: skip
            bodies.add(await reply.read())
        seconds.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    tasks = []
    for number in range(int(options.rate * options.seconds)):
        await asyncio.sleep(max(0.0, begun + number / options.rate - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
    done = await asyncio.gather(*tasks, return_exceptions=True)
    lost = [error for error in done if isinstance(error, BaseException)]
    if lost:
        print(f"{len(lost)} requests were lost: {lost[0]!r}")
    return seconds, bodies


async def both(direct: str, through: str, options: argparse.Namespace) -> dict[str, Any]:
    """Send to both, and return what they show."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        plain, plain_bodies = await send(session, direct, options)
        shadowed, shadowed_bodies = await send(session, through, options)
    result: dict[str, Any] = {
        "requests": len(shadowed), "lost": len(plain) - len(shadowed),
        "same_bytes": plain_bodies == shadowed_bodies,
    }  # fmt: skip
    for name, values in (("direct", plain), ("shadowed", shadowed)):
        cuts = statistics.quantiles(values, n=100)
        result[name] = {"p50_ms": round(1e3 * cuts[49], 3), "p99_ms": round(1e3 * cuts[98], 3)}
    return result


def traffic(options: argparse.Namespace) -> int:
    """Print what the shadow adds to each answer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Chats()) as stable,
        running(Chats(options.canary)) as canary,
        shadow(stable.url, canary.url, Path(folder), "--canary-timeout", "10") as process,
    ):
        url = f"http://127.0.0.1:{process.port}"
        result = asyncio.run(both(stable.url, url, options))
        document = process.document()
        result |= {name: document[name] for name in ("promotion", "pairs", "traffic")}
        print(json.dumps(result, indent=1))
    return 0 if result["same_bytes"] and not result["lost"] else 1


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("alarms", "power", "traffic"))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--soft", type=float, default=0.03, help="how often both fail a soft kind")
    parser.add_argument("--broken", type=float, default=0.01)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--canary", default="", help="hangs, crashes, floods or slow")
    options = parser.parse_args()
    return traffic(options) if options.what == "traffic" else simulate(options)


if __name__ == "__main__":
    sys.exit(main())
