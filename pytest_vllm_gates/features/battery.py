"""The requests for a server with features on and off, and the comparison of its answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import cycle, islice
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
"""Concurrent requests."""
GIVEN_UP = 3
"""After this many requests in a row without an answer no more are sent."""
BEGINNINGS = 24
"""Repeats of the filler before the questions that share a beginning."""
FORMATS: dict[str, dict[str, Any]] = {
    "regex": {"regex": "[a-z]{3}-[0-9]{3}"},
    "object": {"regex": r'\{"name": "[a-z]{1,8}", "born": [0-9]{4}\}'},
    "choice": {"choice": ["the first of these answers", "the second of these answers"]},
}
"""They fix white space and lengths: each backend must allow the same texts."""
FORMAT = "format "
"""The beginning of the name of each request with structured output."""
STREAMS = (4, 16)
"""Concurrent streams of the requests with structured output."""
RETURNED = 4
"""Requests that are sent again after those that fill the cache."""
CONVERSATIONS = ("multi-turn", "thinking-on", "tool-one", "tool-parallel", "tool-result", "system")


@dataclass
class Answers:
    """The answers of a server, by the name of the request."""

    by_request: dict[str, Completion] = field(default_factory=dict)

    @property
    def are_over(self) -> bool:
        """Whether none of the last requests was answered."""
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
        asked[f"{FORMAT}{name}"] = {**body, "structured_outputs": structured}
        if thinking := family.thinking_kwargs("on"):
            asked[f"{FORMAT}{name} after thinking"] = {
                **body,
                "max_tokens": answer_tokens,
                "chat_template_kwargs": thinking,
                "structured_outputs": structured,
            }
    for conversation in conversations:
        if conversation.name in CONVERSATIONS and not conversation.why_not(family):
            body = {**conversation.body(family), "max_tokens": answer_tokens}
            asked[f"conversation {conversation.name}"] = body
    return asked


def ask(
    client: CompletionClient,
    bodies: Mapping[str, Mapping[str, Any]],
    pressing: Mapping[str, Mapping[str, Any]] | None = None,
) -> Answers:
    """Send each request alone, again with its prompt in the cache, and streamed among others.

    Requests with structured output are streamed once more in groups of `STREAMS`. At the end all
    `pressing` requests are sent at once, and the first requests again.
    """
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
    _stream_formats(client, bodies, answers)
    if pressing and not answers.are_over:
        together = client.together([{**body, "stream": True} for body in pressing.values()])
        answers.by_request |= dict(zip(pressing, together, strict=True))
        for name in islice(bodies, RETURNED):
            answers.by_request[f"{name}, afterwards"] = client.ask(bodies[name])
    return answers


def _stream_formats(
    client: CompletionClient, bodies: Mapping[str, Mapping[str, Any]], answers: Answers
) -> None:
    """Stream the requests with structured output in groups of `STREAMS`."""
    formats = [name for name in bodies if name.startswith(FORMAT)]
    for streams in STREAMS if formats else ():
        if answers.are_over:
            return
        group = [*islice(cycle(formats), streams)]
        streamed = [{**bodies[name], "stream": True} for name in group]
        for number, (name, answer) in enumerate(
            zip(group, client.together(streamed), strict=True), 1
        ):
            answers.by_request[f"{name}, stream {number} of {streams}"] = answer


def invalid(answers: Answers, features: Sequence[str]) -> tuple[list[Finding], list[Case]]:
    """Return the structured outputs that violate their format, and all cases that were checked.

    Left out: answers that failed, that `max_tokens` cut or that ended while thinking.
    """
    findings, cases = [], []
    for name, answer in answers.by_request.items():
        structured = answer.request.get("structured_outputs")
        if not structured or answer.error or answer.finish_reason != "stop":
            continue
        if answer.reasoning and not answer.content:
            continue
        case = Case(name, {"case": name, **dict.fromkeys(features, "on")}, answer.request)
        cases.append(case)
        if not _allowed(answer.content, structured):
            (what, allowed), *_ = structured.items()
            findings.append(
                Finding(case, f"the answer {answer.content!r} is not of the {what} {allowed!r}")
            )
    return findings, cases


def _allowed(content: str, structured: Mapping[str, Any]) -> bool:
    if "choice" in structured:
        return content in structured["choice"]
    return re.fullmatch(structured["regex"], content) is not None


def differences(
    without: Answers,
    answers: Answers,
    features: Sequence[str],
    *,
    invariant: bool,
    another_grammar: bool = False,
) -> tuple[list[Finding], list[Case], list[dict[str, Any]]]:
    """Compare answers with those without the features.

    Structured output of `another_grammar` (a feature selects another backend) is compared with the
    same server's answer alone: where a grammar leaves one text, llguidance allows only the tokens
    of its tokenization and xgrammar any that spell the text (llguidance 1.7 and xgrammar 0.2).
    Returns the differences, all cases, and the differences within rounding, if those are allowed.
    """
    findings, cases, equivalent = [], [], []
    for name, first in without.by_request.items():
        plain = first
        if another_grammar and name.startswith(FORMAT):
            alone = f"{name.partition(', ')[0]}, alone"
            plain = answers.by_request.get(alone, first)
            if name == alone:
                continue
        if plain.error or name not in answers.by_request:
            continue
        answer = answers.by_request[name]
        traits = {"case": name, **dict.fromkeys(features, "on")}
        case = Case(name, traits, answer.request)
        cases.append(case)
        sameness = compare(plain, answer, invariant=invariant)
        if sameness.fault:
            says = sameness.fault
            if plain is first:
                says = says.replace("alone ", "without ", 1).replace("now ", "with it ", 1)
            findings.append(Finding(case, says))
        elif sameness.parts_at is not None:
            equivalent.append(
                {"case": name, "parts_at": sameness.parts_at, "behind": sameness.behind_nats}
            )
    return findings, cases, equivalent
