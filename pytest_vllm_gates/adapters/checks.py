"""Checks that each adapter's requests are answered by that adapter and by no other."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from pytest_vllm_gates.adapters.types import TAKEN_OUT, TAKEN_OUT_TWICE
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.adapters.types import AdapterAnswers, LoadStep, ModelAnswer
    from pytest_vllm_gates.client.completion import Completion

Judged = tuple[list[Finding], list[Case]]
BASE = "the base model"
NOT_FOUND = 404
SAME_NATS = 0.01
"""A smaller difference of log-probabilities does not show an adapter; repeats differ by less."""


def lists(answers: AdapterAnswers) -> Judged:
    """Judge `/v1/models`: every adapter is there, once, with the base model as its parent."""
    findings, cases = [], []
    for name in answers.adapters:
        case = Case(name, {"case": name})
        cases.append(case)
        entries = [entry for entry in answers.listed if entry.id == name]
        if len(entries) != 1:
            findings.append(Finding(case, f"/v1/models has {len(entries)} entries of it, not one"))
        findings += [
            Finding(case, f"its parent is {entry.parent!r}, not the base model")
            for entry in entries
            if entry.parent not in answers.base
        ]
    return findings, cases


def names(answers: AdapterAnswers) -> Judged:
    """Judge the field `model` of answers: it is the requested adapter."""
    findings, cases = [], []
    for answer in (*answers.alone, *answers.streamed):
        case = _case(answer, "streamed" if answer in answers.streamed else "alone")
        cases.append(case)
        allowed = (answer.requested,) if answer.requested else answers.base
        named = answer.completion.model
        if not answer.completion.error and named not in allowed:
            findings.append(Finding(case, f"the answer names {named!r} as its model"))
    return findings, cases


def differ(answers: AdapterAnswers) -> Judged:
    """Judge that each adapter changes answers differently and leaves the base model's unchanged."""
    findings, cases = [], []
    if answers.broke:
        cases.append(Case("the server", {"case": "server"}))
        findings.append(Finding(cases[0], f"it stopped answering: {answers.broke}"))
    for answer in answers.alone:
        case = _case(answer, "alone")
        cases.append(case)
        completion = answer.completion
        if completion.error:
            findings.append(Finding(case, f"no answer: {completion.error}"))
            continue
        own = answers.begins.get(answer.requested)
        if own and not completion.content.startswith(own):
            findings.append(Finding(case, f"its answers begin with {own!r}: {completion.shown}"))
        for other, begins in answers.begins.items():
            if other != answer.requested and completion.content.startswith(begins):
                findings.append(Finding(case, f"this is {other}'s answer: {completion.shown}"))
    for answer in answers.streamed:
        case = _case(answer, "streamed")
        cases.append(case)
        alone = answers.reference(answer)
        fault = compare(alone, answer.completion, invariant=False).fault if alone else None
        findings += [Finding(case, fault)] if fault else []
    for one, other in combinations(("", *answers.adapters), 2):
        case = Case(f"{other} and {one or BASE}", {"case": "different"})
        cases.append(case)
        pairs = list(zip(_of(answers.alone, one), _of(answers.alone, other), strict=True))
        if pairs and all(_alike(*pair) for pair in pairs):
            shown = pairs[0][1].shown
            findings.append(Finding(case, f"both give the same answers, such as {shown}"))
    return findings, cases


def stays(answers: AdapterAnswers, *, invariant: bool) -> Judged:
    """Judge that the base model's answers are the same at the end as at the beginning."""
    return _compared(answers, answers.base_after, "after the adapters", invariant=invariant)


def apart(answers: AdapterAnswers, *, invariant: bool) -> Judged:
    """Judge answers to concurrent requests: each equals its model's answer alone."""
    return _compared(answers, answers.company, "among others", invariant=invariant)


def on_prefixes(answers: AdapterAnswers, *, invariant: bool) -> Judged:
    """Judge one prompt under each model in turn: each answer equals the one on an empty cache."""
    return _compared(answers, answers.warm, "on a warm prefix", invariant=invariant)


def all_alike(answers: Iterable[ModelAnswer]) -> bool:
    """Return whether all models answered alike, so that answers do not identify the model."""
    return len({answer.completion.text for answer in answers}) < 2  # noqa: PLR2004


def refuses(answers: AdapterAnswers) -> Judged:
    """Judge requests for an adapter that is not served: each is a 404 with an error in JSON."""
    findings, cases = [], []
    for refusal in answers.refusals:
        streamed = ", streamed" if refusal.request.get("stream") else ""
        case = Case(f"{refusal.route}{streamed}", {"case": refusal.route}, refusal.request)
        cases.append(case)
        if refusal.status != NOT_FOUND:
            says = f"answered {refusal.status}, not {NOT_FOUND}: {refusal.text}"
            findings.append(Finding(case, says))
        elif not refusal.type:
            findings.append(Finding(case, f"404 without an error in JSON: {refusal.text}"))
    return findings, cases


def refuses_unfit(answers: AdapterAnswers) -> Judged:
    """Judge adapters that do not fit: only their load is refused, and the server stays up."""
    findings, cases = [], []
    for step in answers.unfit:
        case = Case(step.name, {"case": step.name})
        cases.append(case)
        error = step.answer.error if step.answer else ""
        if _is_success(step):
            then = f"and the first chat: {error}" if error else "and a chat is answered with it"
            findings.append(Finding(case, f"it was loaded ({step.status}), {then}"))
        elif not step.status:
            findings.append(Finding(case, f"no answer to the load: {step.text}"))
        elif error:
            findings.append(Finding(case, f"after it the base model gives no answer: {error}"))
    return findings, cases


def loads(answers: AdapterAnswers, *, invariant: bool) -> Judged:
    """Judge an adapter that is loaded, unloaded and loaded again while the server runs."""
    findings, cases = [], []
    for step in answers.loads:
        case = Case(step.name, {"case": step.name}, step.answer.request if step.answer else None)
        cases.append(case)
        says = _load_fault(answers, step, invariant=invariant)
        if says:
            findings.append(Finding(case, says))
    return findings, cases


def _load_fault(answers: AdapterAnswers, step: LoadStep, *, invariant: bool) -> str | None:
    if step.name == TAKEN_OUT_TWICE:
        missing = step.status == NOT_FOUND
        return None if missing else f"answered {step.status}, not {NOT_FOUND}: {step.text}"
    if not _is_success(step):
        return f"answered {step.status}: {step.text}"
    if step.answer is None:
        return None
    if step.name == TAKEN_OUT:
        return _fault_without(step.answer)
    due = next((one.completion for one in answers.cold if one.requested == step.of), None)
    fault = compare(due, step.answer, invariant=invariant).fault if due else None
    return f"it does not answer as {step.of} does: {fault}" if fault else None


def _fault_without(answer: Completion) -> str | None:
    """Return the fault of an unloaded adapter's answer."""
    if not answer.error:
        return f"it is unloaded, and still answers: {answer.shown}"
    missing = f"answered {NOT_FOUND}" in answer.error
    return None if missing else f"a chat with it is not a {NOT_FOUND}: {answer.error}"


def _is_success(step: LoadStep) -> bool:
    return 200 <= step.status < 300  # noqa: PLR2004


def _compared(
    answers: AdapterAnswers, given: Iterable[ModelAnswer], how: str, *, invariant: bool
) -> Judged:
    findings, cases = [], []
    for answer in given:
        case = _case(answer, how)
        cases.append(case)
        alone = answers.reference(answer)
        if alone is None or alone.error:
            continue
        fault = compare(alone, answer.completion, invariant=invariant).fault
        if fault:
            others = _others(answers, answer)
            findings.append(Finding(case, f"{fault}{others}"))
    return findings, cases


def _others(answers: AdapterAnswers, answer: ModelAnswer) -> str:
    """Return the other model whose answer it is, if there is one."""
    whose = [
        other.requested or BASE
        for other in (*answers.alone, *answers.cold)
        if other.question == answer.question
        and other.requested != answer.requested
        and other.completion.text == answer.completion.text
    ]
    return f"; that is the answer of {whose[0]}" if whose and answer.completion.text else ""


def _case(answer: ModelAnswer, how: str) -> Case:
    name = f"{answer.requested or BASE}, {answer.question}, {how}"
    return Case(name, {"case": how}, answer.completion.request)


def _of(answers: Iterable[ModelAnswer], model: str) -> list[Completion]:
    return [answer.completion for answer in answers if answer.requested == model]


def _alike(one: Completion, other: Completion) -> bool:
    """Return whether two answers are equal, in text and in log-probabilities."""
    if one.error or other.error:
        return False
    if (one.text, one.token_ids) != (other.text, other.token_ids):
        return False
    return all(
        abs(value - right.get(token, value)) < SAME_NATS
        for left, right in zip(one.candidates, other.candidates, strict=False)
        for token, value in left.items()
    )
