"""Judges a server that was put to sleep, paused, or had its weights read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.lifecycle.checks import OK, same_answers
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.lifecycle.types import Held, OpenOverHold

ENDED = {"abort", "error"}
"""The finish reasons that tell a client that its answer was broken off."""


def answers(
    first: Sequence[tuple[str, Completion]], holds: Sequence[Held], *, invariant: bool
) -> tuple[list[Finding], list[Case]]:
    """Return the answers after a hold that are not those before, and servers that stay held."""
    findings, cases = [], []
    for held in holds:
        if held.refused:
            continue
        if held.stuck:
            case = Case(held.name, {"where": held.name})
            cases.append(case)
            findings.append(Finding(case, f"it does not go on: {held.stuck}"))
        asked = first[: len(held.answers)]
        other, compared = same_answers(
            asked, held.answers, invariant=invariant, where=f"after {held.name}"
        )
        findings += other
        cases += compared
        if held.waited is None or held.waited.error.startswith("answered 503"):
            continue
        other, compared = same_answers(
            first[:1], [held.waited], invariant=invariant, where=f"sent during {held.name}"
        )
        findings += other
        cases += compared
    return findings, cases


def told(holds: Sequence[Held]) -> tuple[list[Finding], list[Case]]:
    """Return what a held server tells of itself that is not so: alive is not ready.

    `/health` is what liveness probes ask, and a held server is alive; whether it is ready its
    own route tells. An answer that comes while it is held shows that it is not.
    """
    findings, cases = [], []
    for held in holds:
        if held.refused or held.waited is None:
            continue
        case = Case(held.name)
        cases.append(case)
        says = []
        if held.health != OK:
            answered = "nothing" if held.health is None else held.health
            says.append(f"/health answers {answered} while it is held: a liveness probe ends it")
        if held.told_held is not True:
            says.append(f"it tells {held.told_held} while it is held: it passes for ready")
        if held.early and not held.waited.error:
            says.append("a request is answered while it is held")
        if not held.stuck and held.told_after is not False:
            says.append(f"it tells {held.told_after} once it goes on: nothing is sent to it")
        findings += [Finding(case, sentence) for sentence in says]
    return findings, cases


def open_answers(
    over: Sequence[OpenOverHold], *, invariant: bool
) -> tuple[list[Finding], list[Case]]:
    """Return the answers under way that a hold changed, or cut as if they were whole."""
    findings, cases = [], []
    for each in over:
        if each.whole.error:
            continue
        case = Case(each.name, {}, each.whole.request)
        cases.append(case)
        fault = compare(each.whole, each.ended, invariant=invariant).fault
        broken_off = each.ended.error or each.ended.finish_reason in ENDED
        if not fault or (broken_off and not each.keeps):
            continue
        if each.keeps:
            findings.append(Finding(case, f"the answer does not go on as it was: {fault}"))
        else:
            says = f"finish_reason {each.ended.finish_reason!r} of an answer that was broken off"
            findings.append(Finding(case, f"{says}: the client takes a part for the whole"))
    return findings, cases
