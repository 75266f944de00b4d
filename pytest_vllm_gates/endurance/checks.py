"""Judges an endurance run: from which canary on they differ, and what grew or sank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_vllm_gates.endurance.types import AGENT, CANARY, LEFT, THOUGHT
from pytest_vllm_gates.load.drift import (
    CONFIDENCE,
    SoakDrift,
    drift,
    growing,
    losing,
    may_be_losing,
)
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.endurance.types import (
        EnduranceBlock,
        EndurancePlan,
        EnduranceResult,
        EnduredRequest,
    )

WARM_UP = 0.2
"""The share of the blocks at the beginning that is not judged: caches and pools still fill."""
RATES = tuple(2.0**-power for power in range(1, 12))
"""The assumed shares of wrong canaries on a broken server, all equally likely."""
SHOWN = 3
RUN = "run"


def odds_of_right(wrong: int, asked: int, tolerated: float) -> float:
    """Return an upper bound of the chance that a correct server gives so many wrong answers.

    The likelihood of a mixture of shares above the tolerated one, over that of the tolerated one:
    a test martingale for it, so that 1 over it bounds the chance however often one looks (Ville).
    """
    rates = [rate for rate in RATES if rate > tolerated]
    logs = [
        wrong * math.log(rate / tolerated)
        + (asked - wrong) * math.log((1 - rate) / (1 - tolerated))
        for rate in rates
    ]
    top = max(logs)
    mixture = top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))
    return min(1.0, math.exp(-min(mixture, 700.0)))


def change_point(canaries: Sequence[EnduredRequest], tolerated: float) -> int:
    """Return the most likely first canary of the wrong ones, counted from 0.

    By maximum likelihood: before it, a canary is wrong with the tolerated share, which a correct
    server may have; from there on with a share of any size.
    """
    wrong = [bool(each.fault) for each in canaries]

    def likelihood(part: Sequence[bool]) -> float:
        hits, count = sum(part), len(part)
        if hits in {0, count}:
            return 0.0
        share = hits / count
        return hits * math.log(share) + (count - hits) * math.log(1 - share)

    def right(part: Sequence[bool]) -> float:
        hits = sum(part)
        return hits * math.log(tolerated) + (len(part) - hits) * math.log(1 - tolerated)

    places = [at for at, bad in enumerate(wrong) if bad]
    return max(places, key=lambda at: right(wrong[:at]) + likelihood(wrong[at:]), default=0)


def canaries(result: EnduranceResult, plan: EndurancePlan) -> tuple[str, str]:
    """Return the fault of the canaries, and why it is undecided; '' each if there is none."""
    asked = result.of(CANARY)
    wrong = [each for each in asked if each.fault]
    if not wrong:
        return "", ""
    since = change_point(asked, plan.tolerated)
    first, after = asked[since], asked[since:]
    late = sum(bool(each.fault) for each in after)
    sentence = (
        f"since request {first.number}, {late} of {len(after)} questions got an answer that "
        f"differs from the first; of {since} before, {len(wrong) - late}\n"
        + "\n".join(f"request {each.number}: {each.fault}" for each in wrong[:SHOWN])
    )
    odds = odds_of_right(len(wrong), len(asked), plan.tolerated)
    if min(odds, result.least_odds) <= plan.odds:
        return sentence, ""
    return "", f"{sentence}\ntoo few to be sure: send more requests"


def others(result: EnduranceResult) -> tuple[list[Finding], list[Case]]:
    """Return the faults of the other answers: no answer, or another's."""
    rest = [each for each in result.requests if each.kind not in {CANARY, THOUGHT}]
    cases = [Case(f"request {each.number} ({each.kind})", {}, each.body or None) for each in rest]
    findings = [
        Finding(case, each.fault) for each, case in zip(rest, cases, strict=True) if each.fault
    ]
    return findings, cases


def too_few_nonces(result: EnduranceResult) -> str:
    """Return why the agents' answers are undecided; '' if they are decided."""
    thought, judged = len(result.of(THOUGHT)), len(result.of(AGENT)) + len(result.of(LEFT))
    if thought <= judged:
        return ""
    return (
        f"{thought} of {thought + judged} answers ended in their thinking, before the grammar "
        "applies: too few are left; short questions are judged by: pytest -m isolation"
    )


def _settled(blocks: Sequence[EnduranceBlock]) -> Sequence[EnduranceBlock]:
    return blocks[round(WARM_UP * len(blocks)) :]


def _drift(
    blocks: Sequence[EnduranceBlock], of: Callable[[EnduranceBlock], float | None]
) -> SoakDrift | None:
    points = [(block.at_s, value) for block in blocks if (value := of(block)) is not None]
    return drift([at for at, _ in points], [value for _, value in points])


def growth(result: EnduranceResult, plan: EndurancePlan) -> tuple[list[str], bool]:
    """Return which figures of memory and handles exceed their limit, and whether one was judged."""
    blocks = _settled(result.blocks)
    memory = _drift(blocks, lambda block: block.memory_bytes)
    handles = _drift(blocks, lambda block: block.handles)
    wrong = [found] if memory and (found := growing(memory, plan.growth_mib, RUN)) else []
    if handles and handles.low > plan.handles:
        wrong.append(
            f"the server's open files and sockets grow by {handles.estimate:.0f} over the run (at "
            f"least {handles.low:.0f}, with {CONFIDENCE:.0%} confidence), {plan.handles} may be: "
            "one day it accepts no connection"
        )
    return wrong, bool(memory or handles)


def sinking(result: EnduranceResult, plan: EndurancePlan) -> tuple[str, str, SoakDrift | None]:
    """Return by how much the rate sinks, why that is undecided, and the drift itself."""
    found = _drift(_settled(result.blocks), lambda block: block.tokens_per_s)
    if found is None:
        return "", "", None
    wrong = losing(found, plan.loss, RUN)
    return wrong, "" if wrong else may_be_losing(found, plan.loss, RUN), found
