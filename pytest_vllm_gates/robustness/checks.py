"""Checks of a server's reactions to wrong and rare requests: one function for each promise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.robustness.types import Reaction, RobustnessResult

# The findings of a check, and all its cases.
Judged = tuple[list[Finding], list[Case]]

SUCCESS = range(200, 300)
REFUSAL = range(400, 500)
NUMBER = re.compile(r"\b(?:0x)?[0-9a-f]*[0-9][0-9a-f]*\b", re.IGNORECASE)
SHOWN = 160
"""Characters of a body in a sentence."""


def refusals(reactions: Iterable[Reaction]) -> dict[str, str]:
    """Return status and message of each refused request by its name, for comparison.

    The model's alias and every number are replaced: they differ from boot to boot.
    """
    messages = {}
    for reaction in reactions:
        if reaction.status in REFUSAL:
            message = (reaction.message or reaction.text)[:SHOWN]
            if reaction.model:
                message = message.replace(reaction.model, "MODEL")
            messages[reaction.case.name] = f"{reaction.status}: {NUMBER.sub('N', message)}"
    return messages


def unsurvived(treatment: RobustnessResult) -> Judged:
    """Find the requests at which the server failed, hung or closed the connection."""
    cases, findings = [], []
    for reaction in treatment.reactions:
        case = _case(reaction)
        cases.append(case)
        if reaction.status is None:
            findings.append(Finding(case, reaction.text))
        elif _failed(reaction):
            findings.append(Finding(case, f"answered {reaction.status}: {_excerpt(reaction.text)}"))
    return findings, cases


def turned_away(treatment: RobustnessResult) -> Judged:
    """Find the valid requests that were not answered."""
    cases, findings = [], []
    for reaction in treatment.reactions:
        if reaction.case.expect != "answered" or _failed(reaction):
            continue
        case = _case(reaction)
        cases.append(case)
        if not reaction.completion:
            sentence = f"answered {reaction.status} with no completion: {_excerpt(reaction.text)}"
            findings.append(Finding(case, sentence))
    return findings, cases


def accepted(treatment: RobustnessResult) -> Judged:
    """Find the requests that were answered although they cannot be fulfilled."""
    cases, findings = [], []
    for reaction in treatment.reactions:
        if reaction.case.expect == "answered" or _failed(reaction):
            continue
        case = _case(reaction)
        cases.append(case)
        if reaction.status in REFUSAL:
            continue
        if reaction.case.expect == "refused":
            findings.append(Finding(case, f"answered {reaction.status}, and not refused"))
        elif not reaction.completion:
            sentence = f"answered {reaction.status} with no completion: {_excerpt(reaction.text)}"
            findings.append(Finding(case, sentence))
    return findings, cases


def unexplained(treatment: RobustnessResult) -> Judged:
    """Find the refusals without a JSON error, or with a message that does not name the fault."""
    cases, findings = [], []
    for reaction in treatment.reactions:
        if reaction.status not in REFUSAL or reaction.case.expect == "answered":
            continue
        case = _case(reaction)
        cases.append(case)
        names = reaction.case.names
        if reaction.message is None:
            sentence = (
                f"refused with {reaction.status} and no JSON error: {_excerpt(reaction.text)}"
            )
            findings.append(Finding(case, sentence))
        elif names and not any(name.lower() in reaction.message.lower() for name in names):
            sentence = (
                f"refused without a word of {' or '.join(names)}: {_excerpt(reaction.message)}"
            )
            findings.append(Finding(case, sentence))
    return findings, cases


def unwell(treatment: RobustnessResult) -> Judged:
    """Find the requests after which an ordinary question got no answer, or another one."""
    cases, findings = [], []
    for checkup in treatment.checkups:
        case = Case(
            f"after {checkup.after[0]!r} to {checkup.after[-1]!r}",
            {"last": checkup.after[-1]},
            checkup.completion.request,
        )
        cases.append(case)
        sameness = compare(treatment.healthy, checkup.completion, invariant=False)
        if sameness.fault:
            findings.append(Finding(case, f"an ordinary question: {sameness.fault}"))
    return findings, cases


def slowest(reactions: Iterable[Reaction]) -> tuple[str, float]:
    """Return the name of the case that took longest, and its seconds."""
    most = max(reactions, key=lambda reaction: reaction.seconds)
    return most.case.name, round(most.seconds, 3)


def _failed(reaction: Reaction) -> bool:
    """Return whether the server neither answered nor refused."""
    return reaction.status is None or reaction.status not in (*SUCCESS, *REFUSAL)


def _case(reaction: Reaction) -> Case:
    return Case(reaction.case.name, {"case": reaction.case.name}, _request_of(reaction))


def _request_of(reaction: Reaction) -> dict[str, Any]:
    """Return the request in a form that can be sent again; a `repeat` stays as in the file."""
    case = reaction.case
    request: dict[str, Any] = {"method": case.method, "path": case.path}
    if case.raw is not None:
        request["raw"] = [part if isinstance(part, str) else part.model_dump() for part in case.raw]
    else:
        request |= {"differs_in": case.body, "without": list(case.without)}
    return request


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
