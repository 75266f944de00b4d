"""Measures `vllm-gates shadow`: how often it is wrong, how soon it rejects, what it costs clients.

    python benchmarks/shadow.py alarms --runs 100 --pairs 5000
    python benchmarks/shadow.py power --runs 100 --pairs 500 --broken 0.01
    python benchmarks/shadow.py costs
    python benchmarks/shadow.py latency --requests 2000
    python benchmarks/shadow.py traffic --rate 200 --seconds 60
    python benchmarks/shadow.py canaries --seconds 15

`alarms` and `power` decide after every pair, like the shadow. The others send chats, every other
one streamed, to a fake server directly and through a shadow, compare every byte, and print both
times; they need an idle machine. The last lines are the figures with their limits; the exit status
is 1 if one is exceeded. `latency` sends one chat at a time, alternately to both. `traffic` sends at
a rate. `costs` is both, in less than three minutes. `canaries` is `traffic` for each kind of bad
canary, with a right one before, between and after them: their times show the noise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from shadow.shadow_servers import CHAT, Chats, ShadowProcess, shadow

from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.decide import HOLD, Question, decide
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

SETTINGS = shadow_settings.load()
POWER = 0.95
MOST_ADDED_MS = 1.0
BAD = ("hangs", "crashes", "floods", "slow")
"""Faults of a canary that must not slow down the stable server's clients."""
NICEST = 19
PAUSE_S = 0.005
"""The pause between two chats of `latency`, so that two cores keep up."""
WARM_S = 4.0
"""The first pairs wait for the judge's imports, so they are sent before the timed ones."""
NOISE = 1.25
"""The allowed excess of times with a bad canary over the slowest run with a right one."""
WHATS = ("alarms", "power", "latency", "traffic", "costs", "canaries")


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
    """Return the first answer that is not HOLD, and its number of pairs; decides after each."""
    drawn = random.Random(seed)  # noqa: S311 - a simulation
    tally = Tally(SETTINGS.kinds, SETTINGS.figures)
    for number in range(1, pairs + 1):
        tally.add(judged_pair(drawn, soft, broken, 1.0))
        promotion = decide(tally, SETTINGS, Question()).promotion
        if promotion == "REJECT" or (promotion != HOLD and not rejects_only):
            return promotion, number
    return HOLD, pairs


def simulate(options: argparse.Namespace) -> int:
    """Print the number of rejected runs, and their pairs."""
    broken = options.broken if options.what == "power" else 0.0
    look = functools.partial(
        first_decision, pairs=options.pairs, soft=options.soft, broken=broken, rejects_only=True
    )
    with ProcessPoolExecutor() as pool:
        ends = list(pool.map(look, range(options.runs)))
    rejected = [number for promotion, number in ends if promotion == "REJECT"]
    share = len(rejected) / options.runs
    if options.what == "alarms":
        print(
            f"equal servers, {options.pairs} pairs, looked at after each: {len(rejected)} of "
            f"{options.runs} runs rejected (none may be)"
        )
        return int(bool(rejected))
    median = f" after {statistics.median(rejected):.0f} pairs (median)" if rejected else ""
    print(
        f"{broken:.1%} of the canary's answers broken, at most {options.pairs} pairs: {share:.0%} "
        f"of {options.runs} runs rejected{median} (at least {POWER:.0%})"
    )
    return int(share < POWER)


def chat_body(*, stream: bool) -> bytes:
    """Return a chat's body."""
    body: dict[str, Any] = {"model": "m", "messages": [], "temperature": 0, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


class Sender:
    """Sends chats to one server, and records the seconds and the body of each answer."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.seconds: list[float] = []
        self.bodies: set[bytes] = set()
        self.lost: list[BaseException] = []

    async def one(self, number: int) -> None:
        """Send one chat, streamed if the number is odd."""
        begun = time.perf_counter()
        async with self._session.post(
            self._url + CHAT, data=chat_body(stream=number % 2 == 1),
            headers={"Content-Type": "application/json"},
        ) as reply:  # fmt: skip
            self.bodies.add(await reply.read())
        self.seconds.append(time.perf_counter() - begun)

    async def at_rate(self, rate: float, seconds: float) -> None:
        """Send at a rate, without waiting for answers."""
        begun = time.perf_counter()
        tasks = []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(self.one(number)))
        done = await asyncio.gather(*tasks, return_exceptions=True)
        self.lost = [error for error in done if isinstance(error, BaseException)]


def summed_up(direct: Sender, shadowed: Sender) -> dict[str, Any]:
    """Return the figures of both senders."""
    result: dict[str, Any] = {
        "requests": len(shadowed.seconds), "lost": len(shadowed.lost),
        "first_lost": repr(shadowed.lost[0]) if shadowed.lost else None,
        "same_bytes": direct.bodies == shadowed.bodies,
    }  # fmt: skip
    cuts = [statistics.quantiles(each.seconds, n=100) for each in (direct, shadowed)]
    for place in (50, 99):
        ours, theirs = (1e3 * cut[place - 1] for cut in cuts)
        result[f"p{place}_ms"] = {
            "direct": round(ours, 3), "shadowed": round(theirs, 3),
            "added": round(theirs - ours, 3),
        }  # fmt: skip
    return result


async def by_turns(direct: str, through: str, requests: int) -> dict[str, Any]:
    """Send one chat at a time, alternately to both, so that copies load both equally."""
    async with aiohttp.ClientSession() as session:
        senders = Sender(session, direct), Sender(session, through)
        await senders[1].at_rate(1 / PAUSE_S, WARM_S)  # the judge's imports
        await senders[0].one(0)
        for sender in senders:
            sender.seconds.clear()
        for number in range(requests):
            for sender in senders:
                await asyncio.sleep(PAUSE_S)
                await sender.one(number)
    return summed_up(*senders)


async def at_rate(direct: str, through: str, options: argparse.Namespace) -> dict[str, Any]:
    """Send at the rate: directly for a third of the time, then through the shadow."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        senders = Sender(session, direct), Sender(session, through)
        await Sender(session, through).at_rate(options.rate, WARM_S)  # the judge's imports
        await senders[0].at_rate(options.rate, options.seconds / 3)
        await senders[1].at_rate(options.rate, options.seconds)
    return summed_up(*senders)


def serve_chats(mode: str, told: Connection, niceness: int) -> None:
    """Serve chats in a separate process, whose time does not count for the sender."""
    os.nice(niceness)
    server = Chats(mode)
    told.send(server.url)
    server.serve_forever()


@contextlib.contextmanager
def apart(mode: str, niceness: int = 0) -> Iterator[str]:
    """Run a fake server in a separate process; yield its URL."""
    ours, theirs = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=serve_chats, args=(mode, theirs, niceness), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def shadowed_chats(canary_mode: str) -> Iterator[tuple[str, ShadowProcess]]:
    """Run a shadow between two fake servers; yield the stable server's URL and the shadow."""
    with (
        tempfile.TemporaryDirectory() as folder,
        apart("") as stable,
        # A real canary runs on another machine: here it has the lowest priority.
        apart(canary_mode, NICEST) as canary,
        shadow(stable, canary, Path(folder), "--canary-timeout", "10") as process,
    ):
        yield stable, process


def measured(what: str, canary: str, options: argparse.Namespace) -> dict[str, Any]:
    """Print and return the figures of one run."""
    with shadowed_chats(canary) as (stable, process):
        through = f"http://127.0.0.1:{process.port}"
        result = asyncio.run(
            by_turns(stable, through, options.requests)
            if what == "latency"
            else at_rate(stable, through, options)
        )
        document = process.document()
    result |= {name: document[name] for name in ("promotion", "pairs", "traffic")}
    print(json.dumps({"what": what, "canary": canary, **result}, indent=1), flush=True)
    return result


def is_whole(result: dict[str, Any]) -> bool:
    """Return whether every answer came, with the server's bytes."""
    return bool(result["same_bytes"] and not result["lost"])


def came(result: dict[str, Any]) -> str:
    """Return the received answers in words."""
    return (
        f"{result['requests']} requests, {result['lost']} lost, bytes "
        f"{'as' if result['same_bytes'] else 'NOT as'} the server's"
    )


def costs(options: argparse.Namespace) -> int:
    """Print the time that the shadow adds to each answer."""
    fine, said = True, []
    for what in ("latency", "traffic") if options.what == "costs" else (options.what,):
        result = measured(what, options.canary, options)
        median, added = (result[place]["added"] for place in ("p50_ms", "p99_ms"))
        limit = f" (both below {MOST_ADDED_MS:.0f})" if what == "latency" else ""
        fine = fine and is_whole(result)
        fine = fine and (what != "latency" or max(median, added) < MOST_ADDED_MS)
        said.append(f"{what}: {came(result)}; p50 {median:+.2f} ms, p99 {added:+.2f} ms{limit}")
    print("\n".join(said))
    return 0 if fine else 1


def canaries(options: argparse.Namespace) -> int:
    """Print the clients' times with a bad canary, beside those with a right one."""
    right, bad = [measured("traffic", "", options)], {}
    for mode in BAD:
        bad[mode] = measured("traffic", mode, options)
        right.append(measured("traffic", "", options))
    usual = [result["p99_ms"]["shadowed"] for result in right]
    most = NOISE * max(usual)
    for mode, result in bad.items():
        print(
            f"canary {mode}: {came(result)}; p99 {result['p99_ms']['shadowed']:.2f} ms, with a "
            f"right canary {min(usual):.2f} to {max(usual):.2f} (at most {most:.2f})"
        )
    waited = [result["p99_ms"]["shadowed"] for result in bad.values()]
    return int(max(waited) > most or not all(map(is_whole, (*right, *bad.values()))))


def main() -> int:
    """Run the requested measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--soft", type=float, default=0.03, help="how often both fail a soft kind")
    parser.add_argument("--broken", type=float, default=0.01)
    parser.add_argument("--requests", type=int, default=2000, help="of `latency`, to each side")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--canary", default="", help="hangs, crashes, floods or slow")
    options = parser.parse_args()
    if options.what in {"alarms", "power"}:
        return simulate(options)
    return canaries(options) if options.what == "canaries" else costs(options)


if __name__ == "__main__":
    sys.exit(main())
