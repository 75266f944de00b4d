"""The process that judges pairs: a line with a pair on stdin, a line with its judgement on stdout.

A process apart from the proxy: reading foreign JSON and schemas then does not delay clients, and
a pair that takes too long can be abandoned.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path

from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.judge import PairJudge
from pytest_vllm_gates.shadow.markers import markers_of
from pytest_vllm_gates.shadow.pair_lines import judgement_line, pair_of
from pytest_vllm_gates.shadow.tally import PairJudgement

NICENESS = 10
"""Clients come first: the proxy gets the processor before this process does, and so does the
process that sends the copies, which started this one."""


def main(family: str | None, project: Path) -> int:
    """Judge until stdin ends."""

    @lru_cache(maxsize=64)
    def markers(model: str) -> tuple[str, ...]:
        return markers_of(family, model, project)

    os.nice(max(0, NICENESS - os.nice(0)))
    judge = PairJudge(shadow_settings.load(), markers)
    for line in sys.stdin.buffer:
        try:
            judged = judge.judge(*pair_of(line))
        except Exception as error:  # noqa: BLE001 - a pair of strangers ends no judging
            judged = PairJudgement(left_out=f"it cannot be judged: {type(error).__name__}")
        try:
            sys.stdout.buffer.write(judgement_line(judged))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # The proxy was killed. Without this, Python would flush stdout when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] or None, Path(sys.argv[2])))
