"""Judges the requests that two replicas got while one after the other was restarted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.lifecycle.types import GRACE_S
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.lifecycle.balancer import BalancedRequest


def restarts(
    failures: Mapping[str, str], left: Mapping[str, int]
) -> tuple[list[Finding], list[Case]]:
    """Return the replicas that did not boot, or had open requests when they were ended."""
    cases = {name: Case(f"the {name} replica") for name in ("first", "second")}
    findings = [Finding(cases[name], f"it does not serve: {why}") for name, why in failures.items()]
    findings += [
        Finding(
            cases[name],
            f"{count} requests are still open {GRACE_S:.0f} s after the last one came: limit them "
            "by max_tokens, or raise the pod's terminationGracePeriodSeconds",
        )
        for name, count in left.items()
    ]
    return findings, [*cases.values()]


def answers(
    first: Sequence[tuple[str, Completion]],
    requests: Sequence[BalancedRequest],
    unanswered: int,
    *,
    invariant: bool,
) -> tuple[list[Finding], list[Case]]:
    """Return requests that were lost or answered differently; each kind of fault once per replica.

    `first` are the questions, each with the first server's answer; a question without an answer
    is not compared.
    """
    cases = [Case(f"request {each.number}", request=each.answer.request) for each in requests]
    told = Counter[tuple[str, str]]()
    findings = []
    for request, case in zip(requests, cases, strict=True):
        question, before = first[request.question]
        if before.error:
            continue
        fault = compare(before, request.answer, invariant=invariant).fault
        if not fault:
            continue
        kind = (request.replica, question)
        told[kind] += 1
        if told[kind] == 1:
            findings.append(Finding(case, f"{request.replica}: {question!r}: {fault}"))
    if unanswered:
        waited = Case("requests without a replica")
        cases.append(waited)
        findings.append(Finding(waited, f"{unanswered} requests found no serving replica"))
    return findings, cases
