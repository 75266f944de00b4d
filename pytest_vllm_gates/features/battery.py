"""What a server is asked with features on and off, and how its answers are held side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.questions import load, question
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.completion import Completion, CompletionClient

QUESTIONS = 8
COMPANY = 8
"""So many requests at once."""
GIVEN_UP = 3
"""After so many requests in a row without an answer no more are sent."""
BEGINNINGS = 24
"""So many times the filler stands before the questions that share a beginning."""
FORMATS: dict[str, dict[str, Any]] = {
    "regex": {"regex": "[a-z]{3}-[0-9]{3}"},
    "object": {"regex": r'\{"name": "[a-z]{1,8}", "born": [0-9]{4}\}'},
    "choice": {"choice": ["the first of these answers", "the second of these answers"]},
}
"""They leave no white space and no length open: each backend has to allow the same texts."""
CONVERSATIONS = ("multi-turn", "thinking-on", "tool-one", "tool-parallel", "tool-result", "system")


@dataclass
class Answers:
    """The answers of a server, by how and what it was asked."""

    by_request: dict[str, Completion] = field(default_factory=dict)

    @property
    def are_over(self) -> bool:
        """Whether the last requests all went without an answer."""
        last = [*self.by_request.values()][-GIVEN_UP:]
        return len(last) == GIVEN_UP and all(answer.error for answer in last)

    @property
    def errors(self) -> dict[str, str]:
        """Why requests were not answered."""
        return {name: answer.error for name, answer in self.by_request.items() if answer.error}


def requests(
    family: Family, conversations: Iterable[Conversation], answer_tokens: int
) -> dict[str, dict[str, Any]]:
    """Return the requests by name: plain, repeating, shared beginnings, formats, conversations."""
    plan = load()
    asked = {
        f"question {number}": question(family, text, plan.answer_tokens)
        for number, text in enumerate(plan.questions[:QUESTIONS], 1)
    }
    beginning = plan.filler * BEGINNINGS
    for number, text in enumerate(plan.questions[:2], 1):
        body = question(family, f"{beginning}\n\n{text}", plan.answer_tokens)
        asked[f"shared beginning {number}"] = body
    for name, structured in FORMATS.items():
        body = question(family, plan.questions[0], 4 * plan.answer_tokens)
        asked[f"format {name}"] = {**body, "structured_outputs": structured}
    for conversation in conversations:
        if conversation.name in CONVERSATIONS and not conversation.why_not(family):
            body = {**conversation.body(family), "max_tokens": answer_tokens}
            asked[f"conversation {conversation.name}"] = body
    return asked


def ask(client: CompletionClient, bodies: Mapping[str, Mapping[str, Any]]) -> Answers:
    """Ask each request alone, once more when its prompt is known, and streamed among others."""
    answers = Answers()
    for how in ("alone", "again"):
        for name, body in bodies.items():
            answers.by_request[f"{name}, {how}"] = client.ask(body)
            if answers.are_over:
                return answers
    names = [*bodies]
    for first in range(0, len(names), COMPANY):
        group = names[first : first + COMPANY]
        streamed = [{**bodies[name], "stream": True} for name in group]
        for name, answer in zip(group, client.together(streamed), strict=True):
            answers.by_request[f"{name}, among others"] = answer
    return answers


def differences(
    without: Answers, answers: Answers, features: Sequence[str], *, invariant: bool
) -> tuple[list[Finding], list[Case], list[dict[str, Any]]]:
    """Compare answers with those without the features.

    Returns what differs, all cases, and what differs within rounding, where that may be.
    """
    findings, cases, equivalent = [], [], []
    for name, plain in without.by_request.items():
        if plain.error or name not in answers.by_request:
            continue
        answer = answers.by_request[name]
        traits = {"case": name, **dict.fromkeys(features, "on")}
        case = Case(name, traits, answer.request)
        cases.append(case)
        sameness = compare(plain, answer, invariant=invariant)
        if sameness.fault:
            says = sameness.fault.replace("alone ", "without ", 1).replace("now ", "with it ", 1)
            findings.append(Finding(case, says))
        elif sameness.parts_at is not None:
            equivalent.append(
                {"case": name, "parts_at": sameness.parts_at, "behind": sameness.behind_nats}
            )
    return findings, cases, equivalent
