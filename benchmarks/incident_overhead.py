"""Measures the cost of recording incidents in a run in which nothing fails.

    python benchmarks/incident_overhead.py --requests 200
    python benchmarks/incident_overhead.py --runs 10 -- -m "reasoning or stop"

Boots a miniature, or uses a running server with `--base-url`; its key is read from $OPENAI_API_KEY.
`--requests` sends the same request, streamed and whole, alternately with a tape and without, and
compares both sums: of the seconds, and of this process's own processor time. `--runs` compares
whole runs of the gates, alternately with incidents and without: the mean of the pairs' ratios with
its 95 % interval (Student's). Passing tests write nothing, so the tape is the only cost. Exits 1 if
the interval exceeds 3 %.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from overhead import boot  # type: ignore[import-not-found, unused-ignore]
from scipy import stats

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.client.tape import Tape
from pytest_vllm_gates.server import attach

MODEL = "qwen3.5"
LIMIT = 0.03
QUESTION = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 200,
    "ignore_eos": True,
    "return_token_ids": True,
}


def requests(base_url: str, times: int) -> None:
    """Send requests alternately, and print the cost of a tape."""
    boot = attach.attach(Endpoint(base_url, "", os.environ.get("OPENAI_API_KEY")), 60.0)
    if boot.endpoint is None:
        sys.exit(boot.failure.explain() if boot.failure else "no server")
    family = families.load(MODEL, Path.cwd())
    tape = Tape()
    taped_chat = Chat(replace(boot.endpoint, tape=tape), family)
    chats = {True: taped_chat, False: Chat(boot.endpoint, family)}
    spent: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(times + 1):
        order = [True, False] if number % 2 else [False, True]
        for kept_too in order:
            started, busy = time.perf_counter(), time.process_time()
            chats[kept_too].ask(QUESTION)
            chats[kept_too].stream(QUESTION)
            if number:  # the first one is a warm-up
                figures = (time.perf_counter() - started, time.process_time() - busy)
                spent[kept_too].append(figures)
    for place, figure_name in enumerate(("time", "processor time of the client")):
        pairs = zip(spent[True], spent[False], strict=True)
        differences = [pair[place] - other_pair[place] for pair, other_pair in pairs]
        usual = statistics.fmean(pair[place] for pair in spent[False])
        print(
            interval_line(figure_name, [1 + value / usual for value in differences]),
            f"of {1000 * usual:.1f} ms",
        )
    pieces = sum(len(request.pieces) for request in tape.of())
    print(f"{len(tape.of())} sends, {pieces} pieces on the tape")


def run(base_url: str, arguments: list[str], *, incidents: bool) -> tuple[float, float]:
    """Return the seconds the gates' tests took, and the processor's seconds of the process."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", "--model", MODEL, "--gates-base-url", base_url]
        argv += ["--checkpoint", "miniature", "--gates-report=report", "-p", "no:cacheprovider"]
        argv += [
            f"--rootdir={folder}",
            "-q",
            *([] if incidents else ["--no-incidents"]),
            *arguments,
        ]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        file = Path(folder, "report", "verdict.json")
        if process.returncode or not file.is_file():
            sys.exit(f"a run failed, so nothing was measured:\n{process.stdout}{process.stderr}")
        verdict = json.loads(file.read_text(encoding="utf-8"))
    seconds = sum(
        test["duration_s"]
        for family in verdict["families"]
        for gate in family["gates"]
        for test in gate["tests"]
    )
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy


def runs(base_url: str, times: int, arguments: list[str]) -> bool:
    """Run the gates alternately, and print the cost of incidents."""
    pairs: list[dict[bool, tuple[float, float]]] = []
    for number in range(times):
        order = [True, False] if number % 2 else [False, True]
        pair = {incidents: run(base_url, arguments, incidents=incidents) for incidents in order}
        pairs.append(pair)
        with_s, without_s = pair[True][0], pair[False][0]
        print(f"{number + 1}: {with_s:.2f} s with incidents, {without_s:.2f} s without", flush=True)
    print(interval_line("processor time", [pair[True][1] / pair[False][1] for pair in pairs]))
    ratios = [pair[True][0] / pair[False][0] for pair in pairs]
    print(interval_line("time of the tests", ratios), f"(at most {LIMIT:.0%})")
    return interval(ratios)[1] <= 1 + LIMIT


def interval_line(name: str, ratios: list[float]) -> str:
    """Return a mean of ratios with its interval."""
    low, high = interval(ratios)
    return f"{name}: {statistics.fmean(ratios) - 1:+.2%} ({low - 1:+.2%} to {high - 1:+.2%})"


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return Student's interval at 95 %; for one value, that value."""
    mean, reach = statistics.fmean(ratios), 0.0
    if len(ratios) > 1:
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        reach = float(stats.t.isf(0.025, len(ratios) - 1)) * error
    return mean - reach, mean + reach


def main() -> int:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--base-url", help="a running server's")
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("more", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args()
    if options.base_url:
        os.environ.setdefault("OPENAI_API_KEY", "none")
        return measure_server(options.base_url, options)
    with tempfile.TemporaryDirectory() as folder:
        server = boot(MODEL, Path(folder))
        try:
            endpoint = server.boot.endpoint
            assert endpoint  # noqa: S101 - or it had ended
            os.environ["OPENAI_API_KEY"] = endpoint.api_key or "none"
            return measure_server(endpoint.base_url, options)
        finally:
            server.stop()


def measure_server(base_url: str, options: argparse.Namespace) -> int:
    """Measure what the options request; return the exit status."""
    if options.requests:
        requests(base_url, options.requests)
    return 0 if not options.runs or runs(base_url, options.runs, options.more) else 1


if __name__ == "__main__":
    sys.exit(main())
