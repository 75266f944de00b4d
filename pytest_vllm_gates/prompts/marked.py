"""Prompts of requests whose every text is marked: the template's, and a server's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.catalog.conversation import ClientShape
from pytest_vllm_gates.client import http
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.outcomes import Case, Finding
from pytest_vllm_gates.prompts import completeness, refusals, sent
from pytest_vllm_gates.prompts.served import served_prompts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer
    from pytest_vllm_gates.prompts.sent import Piece

MOST_CHARACTERS = 20_000
"""The length of a marked request: a long prompt loses no text that a short one keeps."""
REFUSED = "a right refusal is listed under [[prompt.refuses]] of the family file"
LOST = "what the format leaves out is listed under [[prompt.drops]] of the family file"
BROKEN = ", and 400 is expected for a request that cannot be rendered"


@dataclass(frozen=True)
class MarkedPrompt:
    """One marked request, with the prompt of the checkpoint's template."""

    conversation: Conversation
    body: dict[str, Any]
    pieces: tuple[Piece, ...]
    outcome: Rendering | Refused

    @property
    def case(self) -> Case:
        """The request's name in findings and known defects."""
        name = self.conversation.name
        return Case(f"{name}: {self.conversation.title}", {"shape": name})


@dataclass(frozen=True)
class ServedPrompt:
    """A server's prompt of a marked request, obtained through one of its routes."""

    of: MarkedPrompt
    route: str
    text: str = ""
    refused: str = ""


def render(
    conversations: Iterable[Conversation], family: Family, reference: ReferenceRenderer
) -> tuple[MarkedPrompt, ...]:
    """Render the conversations that a family supports; raises `OverLimit` as `outcome` does."""
    prompts = []
    for conversation in conversations:
        body = conversation.body(family)
        if conversation.why_not(family) or len(str(body)) > MOST_CHARACTERS:
            continue
        if conversation.has_images and not reference.takes_images():
            continue
        marked, pieces = sent.mark(body)
        prompts.append(MarkedPrompt(conversation, marked, pieces, reference.outcome(marked)))
    return tuple(prompts)


def ask(
    prompts: Iterable[MarkedPrompt], server: Endpoint, *, chats: bool = False
) -> Iterator[ServedPrompt]:
    """Yield a server's prompts of the requests; nothing without a route that reports them.

    `chats`: whether one token of an answer may be requested, too. Images are not sent: a server
    loads them, and writes as many tokens in their place as they have.
    """
    for prompt in prompts:
        if prompt.conversation.has_images:
            continue
        try:
            served = served_prompts(server, prompt.body, chats=chats)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            said = f"answered {status}{BROKEN}"
            yield ServedPrompt(prompt, error.request.url.path, refused=said)
            continue
        for route, ids in served.items():
            if isinstance(ids, Refused):
                yield ServedPrompt(prompt, route, refused=str(ids))
            elif isinstance(prompt.outcome, Rendering) and ids == prompt.outcome.token_ids:
                yield ServedPrompt(prompt, route, text=prompt.outcome.text)
            else:
                yield ServedPrompt(prompt, route, text=http.detokenize(server, ids))


def refused(
    prompts: Iterable[MarkedPrompt], served: Iterable[ServedPrompt], family: Family
) -> tuple[list[Finding], list[Case]]:
    """Find the clients' requests that the template or the server refuses."""
    findings, cases = [], {}
    for prompt in prompts:
        if refusals.decided(family, prompt.conversation):
            continue
        cases[prompt.conversation.name] = prompt.case
        if isinstance(prompt.outcome, Refused):
            says = refusals.in_words(str(prompt.outcome))
            findings.append(
                Finding(
                    prompt.case, f"the template refuses these messages{_sent_by(prompt)}: {says}"
                )
            )
    for answer in served:
        case = cases.get(answer.of.conversation.name)
        if case and answer.refused and isinstance(answer.of.outcome, Rendering):
            by = f"({answer.route}){_sent_by(answer.of)}"
            says = f"the server refuses these messages {by}: {answer.refused}"
            findings.append(Finding(case, says))
    return findings, [*cases.values()]


def incomplete(
    prompts: Iterable[MarkedPrompt], served: Iterable[ServedPrompt], family: Family
) -> tuple[list[Finding], list[Case]]:
    """Find texts that were sent and are missing or changed in a prompt."""
    return _judged(
        prompts,
        served,
        lambda prompt, text: completeness.faults(prompt.pieces, prompt.body, text, family),
    )


def unsent(
    prompts: Iterable[MarkedPrompt], served: Iterable[ServedPrompt], family: Family
) -> tuple[list[Finding], list[Case]]:
    """Find text in a prompt without tools that was not sent."""

    def faults(prompt: MarkedPrompt, text: str) -> list[str]:
        added = completeness.unsent(text, prompt.pieces, family)
        return [fault for fault in (added, completeness.begins_twice(text, family)) if fault]

    return _judged(
        (prompt for prompt in prompts if not prompt.body.get("tools")),
        (answer for answer in served if not answer.of.body.get("tools")),
        faults,
    )


def next_step(
    ordinary: str,
    findings: Iterable[Finding],
    prompts: Iterable[MarkedPrompt],
    family: Family,
    serve: Mapping[str, Any],
) -> str:
    """Return the ordinary next step, and for tools the prescribed template.

    The template is named only if the lane serves the checkpoint's own one.
    """
    template = family.prescribed_template
    of_tools = {prompt.case.name for prompt in prompts if prompt.body.get("tools")}
    if (
        template is None
        or serve.get("chat_template")
        or not any(finding.case.name in of_tools for finding in findings)
    ):
        return ordinary
    return (
        f"{ordinary}\n{family.title} is served with {template.file}: {template.why} "
        f"({template.reference}). vLLM's wheel does not contain it: get it from {template.where} "
        f"and set chat_template in [serve] of the lane"
    )


def _judged(
    prompts: Iterable[MarkedPrompt],
    served: Iterable[ServedPrompt],
    faults: Callable[[MarkedPrompt, str], list[str]],
) -> tuple[list[Finding], list[Case]]:
    """Judge the template's prompts, and the faults that only the server's prompts have."""
    findings, cases = [], []
    of_template: set[tuple[str, str]] = set()
    for prompt in prompts:
        if isinstance(prompt.outcome, Rendering):
            cases.append(prompt.case)
            for fault in faults(prompt, prompt.outcome.text):
                of_template.add((prompt.conversation.name, fault))
                findings.append(Finding(prompt.case, fault))
    for answer in served:
        for fault in faults(answer.of, answer.text) if answer.text else ():
            if (answer.of.conversation.name, fault) not in of_template:
                says = f"{fault} (as the server renders it, {answer.route})"
                findings.append(Finding(answer.of.case, says))
    return findings, cases


def _sent_by(prompt: MarkedPrompt) -> str:
    conversation = prompt.conversation
    return f" from {conversation.sent_by}" if isinstance(conversation, ClientShape) else ""
