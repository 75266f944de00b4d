"""The effect of each client's `reasoning_effort` on a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.outcomes import Case, Finding
from pytest_vllm_gates.prompts import completeness, marked, refusals, sent
from pytest_vllm_gates.prompts.marked import MarkedPrompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.prompts.marked import ServedPrompt
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""OpenAI's (API reference, `reasoning_effort`), and vLLM 0.32's `max` (ChatCompletionRequest)."""
EFFORT, KWARGS = "reasoning_effort", "chat_template_kwargs"
NONE = "none"
SWITCH = "enable_thinking"
"""The keyword that vLLM derives from an effort if a request has none."""


def render(
    trivial: Conversation, family: Family, reference: ReferenceRenderer
) -> tuple[MarkedPrompt, ...]:
    """Render the plainest question with each effort; raises `OverLimit` as `outcome` does."""
    prompts = []
    for effort in EFFORTS:
        asked = trivial.model_copy(update={"name": f"effort-{effort}", "effort": effort})
        body, pieces = sent.mark(asked.body(family))
        prompts.append(MarkedPrompt(asked, body, pieces, reference.outcome(body)))
    return (*prompts, *_numbered(trivial, family, reference))


def _numbered(
    trivial: Conversation, family: Family, reference: ReferenceRenderer
) -> Iterator[MarkedPrompt]:
    """Render the question with numeric efforts: within the family's range and outside it.

    They are sent as `chat_template_kwargs`: vLLM takes only names for `reasoning_effort`.
    """
    if family.thinking is None or family.thinking.effort_numbers is None:
        return
    least, largest = family.thinking.effort_numbers
    for number in (least - 1, least, (least + largest) // 2, largest, largest + 1):
        asked = trivial.model_copy(update={"name": f"effort-{number}"})
        body, pieces = sent.mark(asked.body(family))
        body[KWARGS] = {**body.get(KWARGS, {}), EFFORT: number}
        yield MarkedPrompt(asked, body, pieces, reference.outcome(body))


def judge(
    prompts: Sequence[MarkedPrompt],
    served: Iterable[ServedPrompt],
    states: dict[str, str],
    family: Family,
) -> tuple[list[Finding], list[Case]]:
    """Find efforts that break a prompt, or that have a wrong effect.

    `states` are the texts of the same prompt with thinking `on`, `off` and `unset`.
    """
    known = family.thinking.efforts if family.thinking else ()
    numbered = [prompt for prompt in prompts if _number(prompt) is not None]
    findings = [*_wrong_numbers(numbered, family)]
    for prompt in prompts:
        if prompt in numbered:
            continue
        effort = str(prompt.conversation.effort)
        if isinstance(prompt.outcome, Refused):
            says = _wrongly_refused(str(prompt.outcome), listed=effort in known)
        else:
            says = _wrongly_changed(effort, prompt.outcome.text, states, family)
            lost = completeness.faults(prompt.pieces, prompt.body, prompt.outcome.text, family)
            findings += [Finding(prompt.case, fault) for fault in lost]
        if says:
            findings.append(Finding(prompt.case, says))
    for answer in served:
        if marked.BROKEN in answer.refused:
            findings.append(Finding(answer.of.case, f"the server {answer.refused}"))
    texts = {
        prompt.outcome.text
        for prompt in prompts
        if prompt.conversation.effort in known and isinstance(prompt.outcome, Rendering)
    }
    if len(known) > 1 and len(texts) == 1:
        says = f"the efforts {', '.join(known)} give one and the same prompt: none has an effect"
        findings.append(Finding(prompts[0].case, says))
    return findings, [prompt.case for prompt in prompts]


def _number(prompt: MarkedPrompt) -> int | None:
    """Return the effort of a prompt, if it is a number."""
    effort = prompt.body.get(KWARGS, {}).get(EFFORT)
    return effort if isinstance(effort, int) else None


def _wrong_numbers(prompts: Sequence[MarkedPrompt], family: Family) -> Iterator[Finding]:
    """Yield numbers that are wrongly refused or accepted, or have no effect."""
    if family.thinking is None or family.thinking.effort_numbers is None:
        return
    least, largest = family.thinking.effort_numbers
    texts: dict[str, int] = {}
    for prompt in prompts:
        number, outcome = _number(prompt), prompt.outcome
        assert number is not None  # noqa: S101 - the caller has chosen them
        within = least <= number <= largest
        if isinstance(outcome, Refused):
            if within:
                said = refusals.in_words(str(outcome))
                yield Finding(prompt.case, f"it is from {least} to {largest}, and refused: {said}")
        elif not within:
            yield Finding(prompt.case, f"it is not from {least} to {largest}, and not refused")
        elif outcome.text in texts:
            says = f"the prompt is the one of effort {texts[outcome.text]}: it has no effect"
            yield Finding(prompt.case, says)
        else:
            texts[outcome.text] = number
            for fault in completeness.faults(prompt.pieces, prompt.body, outcome.text, family):
                yield Finding(prompt.case, fault)


def plain_states(
    trivial: Conversation, family: Family, reference: ReferenceRenderer
) -> dict[str, str]:
    """Return the marked question's prompt by the state of the thinking."""
    states = {}
    for state in ("on", "off", "unset"):
        conversation = trivial.model_copy(update={"thinking": state})
        if conversation.why_not(family):
            continue
        body, _ = sent.mark(conversation.body(family))
        outcome = reference.outcome(body)
        if isinstance(outcome, Rendering):
            states[state] = outcome.text
    return states


def served(
    trivial: Conversation,
    family: Family,
    reference: ReferenceRenderer,
    server: Endpoint,
    *,
    chats: bool,
) -> tuple[list[Finding], list[Case]]:
    """Judge the template's and a server's prompts for each effort; raises as `render` does.

    `chats`: whether the server answers; `/tokenize` reads no effort.
    """
    prompts = render(trivial, family, reference)
    states = plain_states(trivial, family, reference)
    return judge(prompts, marked.ask(prompts, server, chats=chats), states, family)


def _wrongly_refused(reason: str, *, listed: bool) -> str:
    """Return the fault of a refusal; '' if the template itself gives a reason."""
    said = refusals.in_words(reason)
    if listed:
        return f"the family file lists this effort, and the template refuses it: {said}"
    return f"the template breaks: {said}" if said != reason else ""


def _wrongly_changed(effort: str, text: str, states: dict[str, str], family: Family) -> str:
    thinking = family.thinking
    if thinking is None or thinking.switch != SWITCH or effort in thinking.efforts:
        return ""
    if effort == NONE and "off" in states and text != states["off"]:
        return "the prompt is not the one of thinking off: the model still thinks"
    if effort != NONE and not thinking.efforts and text not in states.values():
        return "the prompt differs from the one without an effort, but the family has no efforts"
    return ""
