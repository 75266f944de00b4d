"""Measures a whole run of Qwen3-VL against its bare boot, and the time of the gate `vision`.

    python benchmarks/pictures.py [--rounds 1]

In turns, the server is booted bare (no pytest; until its first answered chat) and judged by all
default gates of the family, each in an empty folder. Medians over the rounds; exits 1 where one is
beyond its limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import overhead  # type: ignore[import-not-found, unused-ignore]
import verdict_cost  # type: ignore[import-not-found, unused-ignore]

MODEL, GATE = "qwen3-vl", "vision"
RATIO_LIMIT = 4.0
"""The whole run may take so many bare boots."""
GATE_LIMIT_S = 40.0


def summary(bare_s: float, whole_s: float, gate_s: float) -> tuple[str, bool]:
    """Return the figure with its limits, and whether it keeps to both."""
    ratio = whole_s / bare_s
    sentence = (
        f"{MODEL}: whole run {whole_s:.1f} s / {bare_s:.1f} s bare boot = {ratio:.2f} "
        f"(at most {RATIO_LIMIT:.0f}); the gate {GATE} {gate_s:.1f} s (at most {GATE_LIMIT_S:.0f})"
    )
    return sentence, ratio <= RATIO_LIMIT and gate_s <= GATE_LIMIT_S


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    bare: list[float] = []
    whole: list[verdict_cost.Cost] = []
    for _ in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as folder:
            bare.append(overhead.bare_boot_s(Path(folder), MODEL))
        with tempfile.TemporaryDirectory() as folder:
            whole.append(verdict_cost.run(Path(folder), "", MODEL))
        print(verdict_cost.line("whole run", whole[-1]), flush=True)
    sentence, kept = summary(
        statistics.median(bare),
        statistics.median(one.wall_s for one in whole),
        statistics.median(one.gates_s[GATE] for one in whole),
    )
    print(sentence)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
