"""Kills pytest with SIGKILL at random moments of a run and searches for remaining processes.

    python benchmarks/kill.py --times 20 --seed 0

A run is marked by a variable in its environment, which every process it starts inherits; those
that have it five seconds after the kill survived it. Exits 1 if any did.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e import gates  # type: ignore[import-not-found, unused-ignore]

LONGEST_S = 30.0
PATIENCE_S = 60.0
SHOWN = 160


def main() -> int:
    """Kill `--times` runs; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=LONGEST_S, help="latest moment, seconds")
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311 - moments, not secrets
    clean = 0
    print("killed after   processes then   gone after   left after 5 s", flush=True)
    for _ in range(options.times):
        clean += kill_once(chance.uniform(0.2, options.longest))
    print(f"{clean} of {options.times} left nothing")
    return 0 if clean == options.times else 1


def kill_once(after_s: float) -> bool:
    """Kill one run after some seconds; return whether it left no process."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        process = gates.start(Path(folder), env={gates.TOKEN: token})
        time.sleep(after_s)
        before = len(gates.marked(token))
        process.kill()
        killed = time.monotonic()
        process.communicate()
        surviving = gates.survivors(token)
        described_survivors = ", ".join(map(described, surviving)) or "nothing"
        gates.survivors(token, PATIENCE_S)
        gone_s = time.monotonic() - killed
    print(f"{after_s:10.1f} s   {before:14d}   {gone_s:8.2f} s   {described_survivors}", flush=True)
    return not surviving


def described(pid: int) -> str:
    """Return a process's id, state, parent and the beginning of its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return f"{pid} (gone meanwhile)"
    return f"{pid} in state {stat[0]}, child of {stat[1]}: {command[:SHOWN].strip()}"


if __name__ == "__main__":
    sys.exit(main())
