"""How fast a prompt is read with the repair `slow_bfloat16` of the CPU lanes, and without.

    python benchmarks/prompt_reading.py

Boots Qwen 3.5's miniature twice, and sends prompts of 500 random tokens that end after one. Prints
the median of each and their ratio; on a processor with AVX512 the repair is idle, and both are
equal. Exits 1 where the repair makes reading slower.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from overhead import boot  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.client import http
from pytest_vllm_gates.environment.overlay import WITHOUT_VARIABLE

MODEL = "qwen3.5"
REPAIR = "slow_bfloat16"
TOKENS = range(10, 1000)
LENGTH = 500
TIMES = 15
NOISE = 1.1
"""How much slower it may look."""


def median_s(without: str, chance: random.Random) -> float:
    """Boot, and return the median time of a prompt."""
    took_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        server = boot(MODEL, Path(folder), environment_variables={WITHOUT_VARIABLE: without})
        endpoint = server.boot.endpoint
        assert endpoint is not None  # noqa: S101 - `boot` ends the program without
        try:
            for _ in range(TIMES):
                body = {"prompt": chance.choices(TOKENS, k=LENGTH), "max_tokens": 1}
                began = time.monotonic()
                http.post(endpoint, "/v1/completions", body).raise_for_status()
                took_s.append(time.monotonic() - began)
        finally:
            server.stop()
    return statistics.median(took_s)


def main() -> int:
    """Measure both and compare."""
    argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else None
    ).parse_args()
    chance = random.Random(0)  # noqa: S311 - which prompts they are is no secret
    without_s, with_s = (median_s(left_out, chance) for left_out in (REPAIR, ""))
    print(
        f"a prompt of {LENGTH} tokens: {with_s * 1000:.0f} ms with {REPAIR}, "
        f"{without_s * 1000:.0f} ms without: {without_s / with_s:.1f} times as fast"
    )
    return int(with_s > NOISE * without_s)


if __name__ == "__main__":
    sys.exit(main())
