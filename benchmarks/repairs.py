"""Measures the time that two repairs of the CPU lanes save; saving time is their only purpose.

    python benchmarks/repairs.py [--rounds N]

Boots Qwen 3.5's miniature in turns with all repairs, without `one_process` and without
`slow_bfloat16`. Prints the median time of a boot, until a chat is answered, with and without the
first, and the median time of a prompt of 500 random tokens with and without the second; on a
processor with AVX512 the second has no effect. Exits 1 if a repair makes its part slower.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from overhead import boot  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.client import http
from pytest_vllm_gates.environment.overlay import WITHOUT_VARIABLE

MODEL = "qwen3.5"
ALL, PROCESS, PRODUCTS = "", "one_process", "slow_bfloat16"
TOKENS = range(10, 1000)
LENGTH = 500
PROMPTS = 15
NOISE = 1.1
"""The allowed slowdown by noise."""


def measure(without: str, chance: random.Random) -> tuple[float, list[float]]:
    """Boot without a repair; return the seconds of the boot, and of each prompt."""
    prompts_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        server = boot(MODEL, Path(folder), environment_variables={WITHOUT_VARIABLE: without})
        endpoint, boot_s = server.boot.endpoint, server.boot.times.first_chat_s
        assert endpoint is not None  # noqa: S101 - `boot` ends the program without
        try:
            for _ in range(PROMPTS):
                body = {"prompt": chance.choices(TOKENS, k=LENGTH), "max_tokens": 1}
                began = time.monotonic()
                http.post(endpoint, "/v1/completions", body).raise_for_status()
                prompts_s.append(time.monotonic() - began)
        finally:
            server.stop()
    return boot_s or 0.0, prompts_s


def main() -> int:
    """Measure in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    chance = random.Random(0)  # noqa: S311 - the prompts are not secret
    boots_s, prompts_s = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(rounds):
        for without in (ALL, PROCESS, PRODUCTS):
            boot_s, took_s = measure(without, chance)
            boots_s[without].append(boot_s)
            prompts_s[without] += took_s
    boots = {without: statistics.median(times) for without, times in boots_s.items()}
    prompts = {without: statistics.median(times) * 1000 for without, times in prompts_s.items()}
    print(
        f"a boot: {boots[ALL]:.1f} s with {PROCESS}, {boots[PROCESS]:.1f} s without: "
        f"{boots[ALL] / boots[PROCESS]:.2f} of the time"
    )
    print(
        f"a prompt of {LENGTH} tokens: {prompts[ALL]:.0f} ms with {PRODUCTS}, "
        f"{prompts[PRODUCTS]:.0f} ms without: {prompts[PRODUCTS] / prompts[ALL]:.1f} times as fast"
    )
    slower = boots[ALL] > NOISE * boots[PROCESS] or prompts[ALL] > NOISE * prompts[PRODUCTS]
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
