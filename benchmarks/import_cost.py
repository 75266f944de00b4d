"""Measures the time that the plugin adds to an ordinary pytest run of another project.

    python benchmarks/import_cost.py --rounds 15

Prints two medians: the import time of the plugin's modules by `python -X importtime`, and the
difference in processor time between runs with the plugin and with it switched off, measured in
turns. Exits 1 if the import takes longer than the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_MS = 50.0
PLUGIN = "pytest_vllm_gates.plugin"
ORDINARY = "def test_nothing():\n    pass\n"
OFF = ("-p", "no:vllm_gates")


def import_ms() -> float:
    """Milliseconds of the plugin's import after pytest is imported."""
    timed = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import pytest, {PLUGIN}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    package = PLUGIN.partition(".")[0]
    # "import time: self [us] | cumulative | name", a nested import indented below its importer's
    lines = [line.removeprefix("import time:").split("|") for line in timed.stderr.splitlines()]
    return sum(int(parts[1]) for parts in lines if parts[-1].startswith(f" {package}")) / 1000


def run_ms(folder: Path, *arguments: str) -> float:
    """Milliseconds of processor time of one ordinary run."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder, capture_output=True, check=True,
    )  # fmt: skip
    after = os.times()
    spent = after.children_user + after.children_system
    return (spent - before.children_user - before.children_system) * 1000


def main() -> int:
    """Measure in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    imports, with_it, without = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_ordinary.py").write_text(ORDINARY, encoding="utf-8")
        run_ms(folder)  # byte code is written once
        for _ in range(rounds):
            imports.append(import_ms())
            with_it.append(run_ms(folder))
            without.append(run_ms(folder, *OFF))
    cost = statistics.median(imports)
    difference = statistics.median(
        value - without_it for value, without_it in zip(with_it, without, strict=True)
    )
    print(f"median of {rounds}: importing {PLUGIN} takes {cost:.1f} ms (at most {LIMIT_MS:.0f})")
    print(
        f"an ordinary run: {statistics.median(with_it):.0f} ms of processor time with it, "
        f"{statistics.median(without):.0f} ms without, difference {difference:+.0f} ms"
    )
    return 0 if cost <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
