"""Keeps a fleet's rate of false alarms at one gate's rate, however many gates judge by odds.

Each throughput gate may be wrong once in a hundred clean runs; of 63, one or more would be in 47 %
of clean fleets. Holm's method requires of the clearest alarm among m gates that its odds are m
times as low, of the next one m - 1 times, until one is not clear enough.
S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).

Gates whose odds of a false alarm are one in a million or below (sampling.toml) need no correction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.outcomes import Outcome, TestResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

GATE = "throughput"
DECISION, ALARM = "decision", "alarm"


def corrected(results: Sequence[TestResult]) -> tuple[list[TestResult], list[str]]:
    """Return the results with unclear alarms as INCONCLUSIVE, and a sentence for each."""
    judged = {
        number: alarm
        for number, result in enumerate(results)
        if (alarm := _alarm(result)) is not None
    }
    stands = True
    changed = list(results)
    sentences = []
    for place, number in enumerate(sorted(judged, key=judged.__getitem__)):
        stands = stands and judged[number] <= 1 / (len(judged) - place)
        result = results[number]
        if stands or result.outcome is not Outcome.FAIL:
            continue
        first_line = result.reason.partition("\n")[0]
        sentence = (
            f"one of {len(judged)} gates that judge by odds, and not clear enough among so many "
            f"(Holm): run its shard again. {first_line}"
        )
        changed[number] = replace(result, outcome=Outcome.INCONCLUSIVE, reason=sentence)
        sentences.append(f"{result.family}: {result.gate}: {result.test}: {sentence}")
    return changed, sentences


def _alarm(result: TestResult) -> float | None:
    """Return an alarm's odds as a share of the odds allowed for one gate; None without odds."""
    decision: Mapping[str, Any] = result.evidence.get(DECISION) or {}
    alarm = decision.get(ALARM) if result.gate == GATE else None
    return float(alarm) if isinstance(alarm, int | float) else None
