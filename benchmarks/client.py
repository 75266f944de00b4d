"""What our client costs and how right it is, beside `vllm bench serve` and the openai SDK.

    python benchmarks/client.py [--rounds 3]

All three read the same streams of a scripted server, one after the other. CPU a chunk is the slope
between a short and a long load (a client's start is not in it), user and system time. For the
rightness 512 streams get a token each at once, every 50 ms; the script knows when it sent
them. Exits 1 when ours is not three times cheaper than `vllm bench serve`, or its p99 of the times
between tokens is more than 5 % from the truth.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai

from pytest_vllm_gates import miniatures
from pytest_vllm_gates.drive import environment
from pytest_vllm_gates.drive.measuring.answers import answered
from pytest_vllm_gates.drive.measuring.measure import measure
from pytest_vllm_gates.facts import lane as lanes
from pytest_vllm_gates.facts.launch import Endpoint
from pytest_vllm_gates.facts.timing import Planned
from pytest_vllm_gates.judge.latency import latency, percentile

SCRIPT = Path(__file__).parents[1] / "tests" / "drive" / "streaming_script.py"
LANE = "cpu"
STREAMS, SHORT, LONG = 64, 20, 220
EVERY_S = 0.02
BURST_STREAMS, BURST_CHUNKS, BURST_EVERY_S = 512, 40, 0.05
CHEAPER = 3.0
OFF = 0.05
PATH = "/v1/chat/completions"

Gaps = list[float]
Client = Callable[[int, int], Gaps]
"""Reads so many streams from a port; returns the seconds between chunks that it saw."""


def ours(port: int, streams: int) -> Gaps:
    """Read with the project's own client."""
    endpoint = Endpoint(f"http://127.0.0.1:{port}/v1", "scripted")
    planned = [Planned(str(number), PATH, b"{}") for number in range(streams)]
    answers = [answered(raw) for raw in measure(endpoint, planned, users=streams).raws]
    if errors := [one.error for one in answers if one.error]:
        raise SystemExit(errors[0])
    return [gap for one in answers if (found := latency(one)) for gap in found.itl_s]


def openai_sdk(port: int, streams: int) -> Gaps:
    """Read with the SDK, asynchronous, as its users do."""

    async def one(client: openai.AsyncOpenAI) -> Gaps:
        stream = await client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "x"}], stream=True
        )
        times = [
            time.monotonic()
            async for chunk in stream
            if chunk.choices and chunk.choices[0].delta.content
        ]
        return [after - before for before, after in itertools.pairwise(times)]

    async def everyone() -> list[Gaps]:
        base_url = f"http://127.0.0.1:{port}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
            return await asyncio.gather(*(one(client) for _ in range(streams)))

    return [gap for gaps in asyncio.run(everyone()) for gap in gaps]


def bench_serve(port: int, streams: int) -> Gaps:
    """Read with `vllm bench serve` of the CPU lane."""
    lane = lanes.load(LANE, Path("/nowhere"))
    ready = environment.prepare(lane, cache=environment.default_cache(), progress=print)
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            str(ready.python), "-m", "vllm.entrypoints.cli.main", "bench", "serve",
            "--backend", "openai-chat", "--endpoint", PATH, "--port", str(port),
            "--model", "scripted", "--tokenizer", str(miniatures.path("qwen3.5")),
            "--dataset-name", "random", "--random-input-len", "8", "--random-output-len", "8",
            "--num-prompts", str(streams), "--request-rate", "inf", "--num-warmups", "0",
            "--ready-check-timeout-sec", "0", "--disable-tqdm", "--save-result", "--save-detailed",
            "--result-dir", folder, "--result-filename", "result.json",
        ]  # fmt: skip
        env = os.environ | {"PYTHONPATH": str(lane.overlay_path), "VLLM_LOGGING_LEVEL": "ERROR"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        file = Path(folder, "result.json")
        if done.returncode or not file.is_file():
            raise SystemExit(done.stdout + done.stderr)
        found = json.loads(file.read_text(encoding="utf-8"))
    return [gap for gaps in found["itls"] for gap in gaps]


CLIENTS: dict[str, Client] = {
    "ours": ours, "openai SDK": openai_sdk, "vllm bench serve": bench_serve,
}  # fmt: skip


@contextlib.contextmanager
def script(streams: int, chunks: int, every_s: float) -> Iterator[subprocess.Popen[str]]:
    """Start the server; its port is the first line it prints, the truth the second."""
    argv = [sys.executable, str(SCRIPT), str(streams), str(chunks), str(every_s), "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server
        finally:
            server.kill()


def told(server: subprocess.Popen[str]) -> str:
    """Return the next line that the script prints."""
    assert server.stdout  # noqa: S101 - it is piped
    return server.stdout.readline()


def cpu_s(name: str, chunks: int) -> float:
    """Return the CPU seconds of a client, run as this program in a process of its own."""
    with script(STREAMS, chunks, EVERY_S) as server:
        argv = [sys.executable, __file__, "--client", name, "--port", told(server).strip()]
        process = subprocess.Popen([*argv, "--streams", str(STREAMS)])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed")
    return usage.ru_utime + usage.ru_stime


def chunk_us(name: str) -> float:
    """Return the microseconds of CPU that a client takes for a chunk."""
    more = STREAMS * (LONG - SHORT)
    return (cpu_s(name, LONG) - cpu_s(name, SHORT)) / more * 1e6


def off(name: str) -> tuple[float, float]:
    """Return the p99 of the times between tokens as a client saw it, and as it was; seconds."""
    with script(BURST_STREAMS, BURST_CHUNKS, BURST_EVERY_S) as server:
        found = CLIENTS[name](int(told(server)), BURST_STREAMS)
        truth = json.loads(told(server))
    return percentile(found, 0.99), percentile(truth, 0.99)


def main() -> int:
    """Print a row for each client."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--streams", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.client:
        CLIENTS[asked.client](asked.port, asked.streams)
        return 0
    costs: dict[str, list[float]] = {name: [] for name in CLIENTS}
    wrong: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(asked.rounds):
        for name in CLIENTS:
            costs[name].append(chunk_us(name))
            seen, truth = off(name)
            wrong[name].append(seen / truth - 1)
    print(f"{'client':18}  CPU a chunk   p99 of the time between tokens, off by")
    for name in CLIENTS:
        cost, error = statistics.median(costs[name]), statistics.median(wrong[name])
        print(f"{name:18}  {cost:8.1f} us   {error:+.1%}")
    ratio = statistics.median(costs["vllm bench serve"]) / statistics.median(costs["ours"])
    error = abs(statistics.median(wrong["ours"]))
    print(f"ours is {ratio:.1f} times cheaper than vllm bench serve")
    return 0 if ratio >= CHEAPER and error <= OFF else 1


if __name__ == "__main__":
    sys.exit(main())
