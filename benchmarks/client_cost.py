"""Measures the CPU time of a streamed chunk for the measuring client and for other clients.

    python benchmarks/client_cost.py --rounds 5

A scripted server sends a token to each of 64 streams every 25 ms, in chunks as vLLM prints them.
The measuring client (from making the requests to computing the figures), `vllm bench serve` and the
openai SDK drive it in turns, each in a process that keeps running, so start and imports do not
count. In every round each drives a short load and a long one; the additional user and system time
of the long one, child processes included, is divided by its additional chunks. Each sends its usual
request to vLLM, so the measuring client gets usage and token ids in every chunk and has 50 % more
bytes to read; with `--alike` all clients request them.

Most of the cost of a chunk is the kernel's reading. A reader that waits for the sockets, reads them
and discards the data measures this part. Exits 1 if a chunk costs the measuring client, by the
medians and without the reader's cost, more than a third of its cost in `vllm bench serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import bench_serve  # type: ignore[import-not-found, unused-ignore]
import openai
from servers import running
from servers.raw import Timetable, TimetableServer, gaps

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.generator.socket_client import READ_BYTES, Target
from pytest_vllm_gates.load.latency import latency, percentile
from pytest_vllm_gates.load.requests import Maker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.load.types import PlannedRequest

STREAMS = 64
EVERY_S = 0.025
SHORT, LONG = 40, 240
"""Chunks a stream."""
PROMPT_TOKENS = 128
LIMIT = 3.0
USAGE = {"include_usage": True}
OWN_ASKS = {"stream_options": {**USAGE, "continuous_usage_stats": True}, "return_token_ids": True}
NAMES = ("reading alone", "ours", "vllm bench serve", "openai SDK")
# The output of `run` is for people; only its cost goes to the real standard output.
STAYING = """\
import json, resource, sys
told, sys.stdout = sys.stdout, sys.stderr
def cpu_s():
    both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, both))
for line in sys.stdin:
    before = cpu_s()
    run(json.loads(line))
    print(cpu_s() - before, file=told, flush=True)
"""
OWN = "from client_cost import {name} as run\n"


def planned_requests(endpoint: Endpoint, tokens: int) -> Sequence[PlannedRequest]:
    """Return the requests of a load as the measuring client sends them."""
    lengths = {"prompt_tokens": [PROMPT_TOKENS] * 2, "output_tokens": [tokens] * 2}
    maker = Maker(endpoint, planned_traffic(lengths, {"shared": 0.0}), range(8 * PROMPT_TOKENS))
    return maker.make("cost", [None] * STREAMS).planned


def reading(job: dict[str, Any]) -> None:
    """Read the chunks of a load off the sockets, and nothing else."""
    url = urlsplit(job["base_url"])
    assert url.hostname  # noqa: S101
    assert url.port  # noqa: S101
    target = Target(url.hostname, url.port, {"Content-Type": "application/json"})
    sockets = {}
    with select.epoll() as epoll:
        for request in planned_requests(Endpoint(job["base_url"], job["model"]), job["tokens"]):
            connection = socket.create_connection((url.hostname, url.port))
            connection.sendall(target.bytes_of(request))
            sockets[connection.fileno()] = connection
            epoll.register(connection, select.EPOLLIN)
        while sockets:
            for number, _ in epoll.poll():
                if not sockets[number].recv(READ_BYTES):
                    sockets.pop(number).close()


def ours(job: dict[str, Any]) -> None:
    """Drive a load with the measuring client, and read its figures."""
    endpoint = Endpoint(job["base_url"], job["model"])
    load = measure(endpoint, planned_requests(endpoint, job["tokens"]), STREAMS)
    answers = [answered(raw) for raw in load.raws]
    assert {answer.error for answer in answers} == {""}  # noqa: S101
    assert {answer.output_tokens for answer in answers} == {job["tokens"]}  # noqa: S101
    figures([gap for measured in map(latency, answers) if measured for gap in measured.itl_s])


def sdk(job: dict[str, Any]) -> None:
    """Drive a load with the openai SDK, in simple hand-written code."""

    async def stream(client: openai.AsyncOpenAI, number: int) -> list[float]:
        chunks = await client.completions.create(
            model=job["model"], prompt=[number] * PROMPT_TOKENS, max_tokens=job["tokens"],
            temperature=0, stream=True, extra_body={"ignore_eos": True, **job["asks"]},
        )  # fmt: skip
        return [time.perf_counter() async for chunk in chunks if chunk.choices]

    async def all_of_them() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=job["base_url"], api_key="none") as client:
            return await asyncio.gather(*(stream(client, number) for number in range(STREAMS)))

    times_of_streams = asyncio.run(all_of_them())
    assert {len(times) for times in times_of_streams} == {job["tokens"]}  # noqa: S101
    figures([b - a for times in times_of_streams for a, b in itertools.pairwise(times)])


def figures(itl_s: list[float]) -> None:
    """Print what bench serve prints, too."""
    print([1000 * percentile(itl_s, share) for share in (0.5, 0.99)])


class Staying:
    """A client's process, which drives one load after another."""

    def __init__(self, argv: list[str], env: dict[str, str], output: IO[str]) -> None:
        """`output` receives its error output."""
        self._process = subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
        )
        self._output = Path(output.name)

    def cpu_s(self, job: object) -> float:
        """Return the CPU seconds of one load; raises SystemExit with its last lines."""
        assert self._process.stdin  # noqa: S101 - it has pipes
        assert self._process.stdout  # noqa: S101
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        if line := self._process.stdout.readline():
            return float(line)
        raise SystemExit(self._output.read_text(encoding="utf-8")[-4000:])

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def waiting_clients(peer: bench_serve.BenchServe, endpoint: Endpoint) -> Iterator[list[Staying]]:
    """Run the clients' processes during the block."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    lane = peer.environment(endpoint)
    commands = [
        ([sys.executable, "-c", OWN.format(name="reading") + STAYING], env),
        ([sys.executable, "-c", OWN.format(name="ours") + STAYING], env),
        ([str(peer.python), "-c", bench_serve.PEER + STAYING], lane),
        ([sys.executable, "-c", OWN.format(name="sdk") + STAYING], env),
    ]
    with contextlib.ExitStack() as stack:
        clients = []
        for argv, environ in commands:
            output = stack.enter_context(tempfile.NamedTemporaryFile("w"))
            clients.append(Staying(argv, environ, output))
            stack.callback(clients[-1].stop)
        yield clients


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alike", action="store_true", help="all clients request the same chunks")
    options = parser.parse_args()
    rounds = options.rounds
    asks = OWN_ASKS if options.alike else {"stream_options": USAGE}
    peer = bench_serve.of_lane()

    def jobs(tokens: int) -> list[object]:
        own_job = {
            "base_url": endpoint.base_url, "model": endpoint.model, "tokens": tokens, "asks": asks
        }  # fmt: skip
        flags = peer.flags(
            endpoint, requests=STREAMS, users=STREAMS,
            prompt_tokens=PROMPT_TOKENS, output_tokens=tokens,
        )  # fmt: skip
        return [own_job, own_job, [*flags, f"--extra-body={json.dumps(asks)}"], own_job]

    costs: list[list[float]] = [[] for _ in NAMES]
    with running(TimetableServer(Timetable(STREAMS, EVERY_S))) as server:
        endpoint = server.endpoint
        with waiting_clients(peer, endpoint) as clients:
            for client, job in zip(clients, jobs(SHORT), strict=True):
                client.cpu_s(job)  # the first time differs from the others
                server.sent()
            for _ in range(rounds):
                late_ms = []
                for client, short, long, costs_of_client in zip(
                    clients, jobs(SHORT), jobs(LONG), costs, strict=True
                ):
                    short_s, long_s = client.cpu_s(short), client.cpu_s(long)
                    server.sent()
                    late_ms += [1000 * (gap - EVERY_S) for gap, _ in gaps(server.sent())]
                    costs_of_client.append(1e6 * (long_s - short_s) / (STREAMS * (LONG - SHORT)))
                figures = (cost[-1] for cost in costs)
                print(
                    f"{_line(figures)}   (the server itself up to {max(late_ms):.1f} ms late)",
                    flush=True,
                )
    reading_cost, own_cost, bench, sdk_cost = (statistics.median(cost) for cost in costs)
    print(f"medians of {rounds}: {_line((reading_cost, own_cost, bench, sdk_cost))}")
    times = (
        (bench - reading_cost) / (own_cost - reading_cost) if own_cost > reading_cost else math.inf
    )
    print(
        f"ours is {bench / own_cost:.1f} times cheaper than vllm bench serve, beyond reading alone "
        f"{times:.1f} times (at least {LIMIT:g}); {sdk_cost / own_cost:.1f} times cheaper than "
        "the SDK"
    )
    return 0 if own_cost > 0 and times >= LIMIT else 1


def _line(figures: Any) -> str:
    pairs = zip(NAMES, figures, strict=True)
    return "   ".join(f"{name} {figure:6.1f} us/chunk" for name, figure in pairs)


if __name__ == "__main__":
    sys.exit(main())
