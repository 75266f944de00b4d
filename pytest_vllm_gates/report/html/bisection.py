"""The report's section on a bisection: the culprit, how sure it is, and each trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html.drawing import first, listing, mapping, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.report.html.drawing import TextLimits

MOST_CULPRITS = 12


def bisection(document: Mapping[str, Any], limits: TextLimits) -> dict[str, Any] | None:
    """Return what a bisection found; None for a report without one."""
    found = mapping(document.get("bisection"))
    if not found:
        return None
    trials, left_out = first(map(mapping, listing(found.get("trials"))), limits.items)
    confidence = number(found.get("confidence"))
    return {
        "good": str(found.get("good", "")),
        "bad": str(found.get("bad", "")),
        "sentence": str(found.get("sentence", "")),
        "sure": "certain" if found.get("certain") else _probability(confidence),
        "culprits": [
            _culprit(mapping(each)) for each in listing(found.get("culprits"))[:MOST_CULPRITS]
        ],
        "trials": [
            {
                "bundle": str(trial.get("bundle", "")),
                "vllm": str(trial.get("vllm", "")),
                "answer": str(trial.get("answer", "")),
                "seconds": number(trial.get("seconds")) or 0.0,
                "why": str(trial.get("why", "")),
            }
            for trial in trials
        ],
        "left_out": left_out,
        "read": [str(address) for address in listing(found.get("read"))[: limits.items]],
        "lane": str(found.get("lane") or ""),
    }


def _probability(confidence: float | None) -> str:
    # Below 100 % by as little as the terminal shows, as nothing is certain here.
    return f"{min(confidence, 0.9999):.2%} by the trials" if confidence else "unknown"


def _culprit(culprit: Mapping[str, Any]) -> dict[str, str]:
    between = [str(each) for each in listing(culprit.get("between"))]
    return {
        "axis": str(culprit.get("axis", "")),
        "items": ", ".join(str(each) for each in listing(culprit.get("items"))),
        "last_good": str(culprit.get("last_good", "")),
        "first_bad": str(culprit.get("first_bad", "")),
        "between": ", ".join(between),
    }
