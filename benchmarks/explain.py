"""Measures the accuracy and speed of `explain`: `python benchmarks/explain.py [--json]`.

Prints the accuracy by kind of log and the share of answers that are wrong and certain, from
`explain_accuracy.py`, then time and memory.

Each log is written to a temporary folder and read in a separate process. `served` is a server that
answers for days, `words` repeats no line, `errors` is one traceback after another, and `docker` is
the first log in the format of Docker's `json-file` driver. Each ends with a failure, which must be
found.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import explain_accuracy  # type: ignore[import-not-found, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MB = 1_000_000
SIZES_MB = (10, 200)
STAMP = "11-22 02:16:25"
FAILURE = (
    f"(EngineCore pid=9) ERROR {STAMP} [core.py:1] ValueError: No available memory for the cache "
    "blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
)
EXPECTED = "KV_NONE"
LETTERS = "etaoinshrdlucmfwypvbgk"
MEASURE = """
import json, resource, sys, time
from pathlib import Path
from pytest_vllm_gates.server import log
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.diagnosis import explain
started = time.perf_counter()
classes = signature.load_all()
explain.table(classes)
ready = time.perf_counter()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cpu = time.process_time()
found = explain.explain(log.blocks(Path(sys.argv[1])), classes)
done = time.perf_counter()
cpu = time.process_time() - cpu
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"id": found.id, "lines": found.lines_read, "table_s": ready - started,
                  "read_s": done - ready, "cpu_s": cpu, "peak_mb": after / 1024, "grew_mb": (after - before) / 1024}))
"""  # noqa: E501


def served() -> Iterator[str]:
    """Yield the lines of a server that answers requests."""
    chance = random.Random(1)  # noqa: S311 - noise
    while True:
        port = chance.randrange(1024, 65536)
        yield (
            f"(APIServer pid=1) INFO:     10.0.0.{port % 250}:{port} - "
            '"POST /v1/chat/completions HTTP/1.1" 200 OK'
        )
        if not port % 10:
            yield (
                f"(APIServer pid=1) INFO {STAMP} [loggers.py:271] Engine 000: Avg prompt "
                f"throughput: {port / 7:.1f} tokens/s, Avg generation throughput: "
                f"{port / 3:.1f} tokens/s, Running: {port % 64} reqs, Waiting: 0 reqs, "
                f"GPU KV cache usage: {port % 100}.0%, Prefix cache hit rate: 41.3%"
            )
        if not port % 1000:
            yield f"Loading safetensors checkpoint shards: {port % 100}% Completed\r"


def words() -> Iterator[str]:
    """Yield lines of random words."""
    chance = random.Random(2)  # noqa: S311 - noise
    while True:
        lengths = (chance.randrange(2, 9) for _ in range(16))
        text = " ".join("".join(chance.choices(LETTERS, k=length)) for length in lengths)
        yield f"(EngineCore pid=9) INFO {STAMP} [noise.py:{chance.randrange(900)}] {text}"


def errors() -> Iterator[str]:
    """Yield tracebacks of several processes, each with another unknown error."""
    number = 0
    while True:
        number += 1
        process = f"(Worker_TP{number % 8} pid={number % 8}) ERROR {STAMP} [worker.py:1]"
        yield f"{process} Traceback (most recent call last):"
        for frame in range(8):
            yield f'{process}   File "/usr/lib/python3/vllm/worker.py", line {frame}, in step'
            yield f"{process}     raise RuntimeError(f'this is not known: {{error}}')"
        yield f"{process} RuntimeError: nobody knows error {number}"


def docker() -> Iterator[str]:
    """Yield the lines of `served` in Docker's format."""
    for line in served():
        record = {"log": line + "\n", "stream": "stderr", "time": "2026-11-22T02:16:25.1Z"}
        yield json.dumps(record, separators=(",", ":"))


LOGS: dict[str, Callable[[], Iterator[str]]] = {
    "served": served,
    "words": words,
    "errors": errors,
    "docker": docker,
}


def write(path: Path, lines: Iterator[str], size: int) -> None:
    """Write a log of the given size with the failure last; the first 10 MB are repeated."""
    block, length = [], 0
    for line in lines:
        block.append(line)
        length += len(line) + 1
        if length >= min(size, 10 * MB):
            break
    text = "\n".join(block) + "\n"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(max(1, round(size / length))):
            file.write(text)
        file.write(FAILURE + "\n")


def main() -> int:
    """Measure every kind of log in every size.

    Return 1 if 10 MB take a second of processor time, or if the failure is not found.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mb", type=int, action="append", help="a size (again for another)")
    options = parser.parse_args()
    results: list[dict[str, object]] = []
    told, failed = explain_accuracy.report()
    if not options.json:
        print("\n".join(told), end="\n\n")
    with tempfile.TemporaryDirectory() as folder:
        for size in options.mb or SIZES_MB:
            for kind, lines in LOGS.items():
                path = Path(folder, f"{kind}.log")
                write(path, lines(), size * MB)
                started = time.monotonic()
                process = subprocess.run(
                    [sys.executable, "-c", MEASURE, str(path)],
                    check=True, capture_output=True, text=True,
                )  # fmt: skip
                measured = json.loads(process.stdout)
                measured |= {
                    "log": kind,
                    "mb": size,
                    "mb_per_s": size / measured["read_s"],
                    "whole_s": time.monotonic() - started,
                }
                results.append(measured)
                path.unlink()
                failed |= measured["id"] != EXPECTED or (
                    size == SIZES_MB[0] and measured["cpu_s"] >= 1
                )
                if not options.json:
                    print(
                        f"{kind:8} {size:4} MB  {measured['read_s']:6.2f} s  "
                        f"({measured['cpu_s']:5.2f} s of CPU)  {measured['mb_per_s']:6.1f} MB/s  "
                        f"peak {measured['peak_mb']:5.0f} MB, {measured['grew_mb']:4.1f} of them "
                        f"for the log  {measured['id']}"
                    )
    if options.json:
        print(json.dumps({"accuracy": told, "time": results}, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
