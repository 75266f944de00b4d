"""How fast the machine itself is at the moment: the same work on every core, with nobody asking.

What a shared machine does to a server whose work is the processor's it does to this work too, and
what a baseline recorded on a quiet day would call slower may only be a busy one.

    python -m pytest_vllm_gates.drive.yardstick

does a round of work for each line it reads, and writes how many units a second it did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Self

PROGRAM = "pytest_vllm_gates.drive.yardstick"
ROUND_S = 0.15
MOST_CORES = 8
UNIT = 2000


class Yardstick:
    """Processes, one a core, that work when asked while the `with` block lasts."""

    def __enter__(self) -> Self:
        cores = min(len(os.sched_getaffinity(0)), MOST_CORES)
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            )
            for _ in range(cores)
        ]  # fmt: skip
        self.speed()  # all have come up
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.communicate()  # its input ends, and so does it

    def speed(self) -> float:
        """Work for a moment on every core; return units a second over all of them."""
        for process in self._processes:
            assert process.stdin  # noqa: S101 - it is a pipe
            process.stdin.write("\n")
        return sum(_told(process) for process in self._processes)


def _told(process: subprocess.Popen[str]) -> float:
    assert process.stdout  # noqa: S101 - it is a pipe
    return float(process.stdout.readline())


def work(seconds: float) -> float:
    """Do what an interpreter does all day, for a while; return units a second."""
    began = time.perf_counter()
    found: dict[int, str] = {}
    done = 0
    while (took := time.perf_counter() - began) < seconds:
        for number in range(UNIT):
            found[number & 255] = str(number)
        done += 1
    return done / took


def main() -> None:
    """Work whenever a line comes in."""
    for _ in sys.stdin:
        print(work(ROUND_S), flush=True)


if __name__ == "__main__":
    main()
