"""Judges a server that was put to sleep, paused, or had its weights read again (suspended)."""

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
"""The finish reasons that report a broken-off answer to the client."""


def answers(
    first: Sequence[tuple[str, Completion]], holds: Sequence[Held], *, invariant: bool
) -> tuple[list[Finding], list[Case]]:
    """Return answers after a suspension that differ, and servers that do not resume."""
    findings, cases = [], []
    for held in holds:
        if held.refused:
            continue
        if held.stuck:
            case = Case(held.name, {"where": held.name})
            cases.append(case)
            findings.append(Finding(case, f"it does not resume: {held.stuck}"))
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
    """Return wrong reports of a suspended server about its state: alive is not ready.

    Liveness probes use `/health`, and a suspended server is alive; its own route reports whether
    it is ready. An answer that arrives while it is suspended shows that it is not suspended.
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
            says.append(f"/health answers {answered} while suspended: a liveness probe ends it")
        if held.told_held is not True:
            says.append(f"it reports {held.told_held} while suspended: it passes for ready")
        if held.early and not held.waited.error:
            says.append("a request is answered while suspended")
        if not held.stuck and held.told_after is not False:
            says.append(f"it reports {held.told_after} once it has resumed: it gets no requests")
        findings += [Finding(case, sentence) for sentence in says]
    return findings, cases


def open_answers(
    over: Sequence[OpenOverHold], *, invariant: bool
) -> tuple[list[Finding], list[Case]]:
    """Return open answers that a suspension changed, or cut as if they were complete."""
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
            findings.append(Finding(case, f"the answer does not continue as before: {fault}"))
        else:
            says = f"finish_reason {each.ended.finish_reason!r} of an answer that was broken off"
            findings.append(Finding(case, f"{says}: the client mistakes a part for the whole"))
    return findings, cases
