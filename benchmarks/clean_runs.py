"""Runs the gates again and again on one healthy server: each run has to end in PROMOTE.

    python benchmarks/clean_runs.py --times 10

A gate that is red now and then on a server that is well is not believed when it matters. Exits 1
when any run was not clean.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e import gates  # type: ignore[import-not-found, unused-ignore]
from e2e.served import Served  # type: ignore[import-not-found, unused-ignore]


def main() -> int:
    """Boot once, judge so many times; print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    clean = 0
    with tempfile.TemporaryDirectory() as name:
        served = Served(gates.MODEL, Path(name), lambda _: None)
        key = {"OPENAI_API_KEY": served.endpoint.api_key or ""}
        for number in range(1, times + 1):
            folder = Path(name, str(number))
            folder.mkdir()
            ran = gates.run(folder, "--base-url", served.endpoint.base_url, env=key)
            good = ran.verdict["promotion"] == "PROMOTE" and ran.status == 0
            clean += good
            print(f"{number:3d}  {ran.verdict['promotion']}  {ran.outcomes()}", flush=True)
            if not good:
                print(ran.output)
        served.stop()
    print(f"{clean} of {times} clean")
    return 0 if clean == times else 1


if __name__ == "__main__":
    sys.exit(main())
