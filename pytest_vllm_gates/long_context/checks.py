"""Checks of a server on a ladder of prompt lengths: one function for each promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.long_context.types import Rung
from pytest_vllm_gates.numerics.checks import output_distance
from pytest_vllm_gates.numerics.types import Scores
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.long_context.types import LadderResult, RungResult
    from pytest_vllm_gates.numerics.checks import Tolerance
    from pytest_vllm_gates.server.watchdog import Hang, RestState


def rest_faults(healthy: Completion, rest: RestState, *, invariant: bool) -> Iterator[str]:
    """Yield how the server differs from before; `healthy` is the canary's answer then."""
    if fault := compare(healthy, rest.canary, invariant=invariant).fault:
        yield f"afterwards the answer to a short question differs from before: {fault}"
    if rest.in_flight:
        yield f"{rest.in_flight} requests are still in flight, but no client waits for them"
    elif rest.kv_usage:
        yield f"no request is in flight, but {rest.kv_usage:.1%} of the KV cache is in use"


def hang_sentence(hang: Hang) -> str:
    """Return a hang as a sentence."""
    stacks = f"; the stacks of its processes: {hang.stacks}" if hang.stacks else ""
    return (
        f"hangs: {hang.running} running, {hang.waiting} waiting, and no progress for "
        f"{hang.silent_s:.0f} s, while /health returns {hang.health}{stacks}"
    )


# The findings of a check, and all its cases.
Judged = tuple[list[Finding], list[Case]]
REFUSAL = range(400, 500)
GROWTH_BYTES = 128 * 2**20
"""Allowed growth of a server from one crowd to an equal one; a healthy server grew by 15 MiB."""
MIB = 2**20


def rungs(planned: int, context: int, output: int, at_once: int, crowd: int) -> list[Rung]:
    """Return the rungs: an eighth, a quarter, a half and all of the planned length, then the limit.

    Each length is requested alone, again on its warm prefix, and by `at_once` requests; the last,
    which fills the context to the token, also by two equal crowds.
    """
    planned = min(planned, context)
    lengths = [planned // 8, planned // 4, planned // 2]
    lengths += [planned - planned // 8] if planned == context else [planned]
    planned_rungs = []
    for length in [*lengths, context]:
        prompt = length - output
        planned_rungs += [
            Rung(prompt, output),
            Rung(prompt, output, prefix="warm"),
            Rung(prompt, output, at_once),
        ]
    return [*planned_rungs, *[Rung(context - output, output, crowd)] * 2]


def unanswered(climb: LadderResult) -> Judged:
    """Find the requests that were not answered, or whose prompt or answer was cut."""
    findings, cases = [], []
    for rung_result in climb.rungs:
        case = _case(rung_result)
        cases.append(case)
        if rung_result.hang:
            continue  # `hangs` reports it
        findings += [Finding(case, sentence) for sentence in dict.fromkeys(_faults(rung_result))]
    return findings, cases


def _faults(rung_result: RungResult) -> Iterator[str]:
    rung = rung_result.rung
    for reply in rung_result.replies:
        if reply.error:
            yield reply.error
            continue
        if reply.prompt_tokens != rung.prompt_tokens:
            yield (
                f"the prompt had {rung.prompt_tokens} tokens, but the server counts "
                f"{reply.prompt_tokens}: a part of it was not read"
            )
        if len(reply.output) != rung.output_tokens or reply.finish_reason != "length":
            yield (
                f"{rung.output_tokens} tokens were requested with ignore_eos, but "
                f"{len(reply.output)} came (finish_reason {reply.finish_reason!r})"
            )


def changed(climb: LadderResult, allowed: Tolerance, *, invariant: bool) -> Judged:
    """Find answers on a warm prefix or in parallel that differ from the cold answer alone.

    If answers are invariant, every token must be the same; otherwise they may differ from a token
    on where the first answer was in doubt. Log-probabilities must always be within the tolerance.
    """
    findings, cases = [], []
    alone: dict[int, Scores] = {}
    for rung_result in climb.rungs:
        length = rung_result.rung.prompt_tokens
        scored = [
            Scores((), (), reply.output, reply.output_logprobs, reply.leads)
            for reply in rung_result.replies
            if not reply.error and len(reply.output_logprobs) == len(reply.output)
        ]
        if not scored:
            continue
        if length not in alone:
            alone[length] = scored[0]
            continue
        case = _case(rung_result)
        cases.append(case)
        for scores in scored:
            if invariant and scores.output != alone[length].output:
                sentence = f"answered with other tokens than alone: {_parts(alone[length], scores)}"
                findings.append(Finding(case, sentence))
                break
            if faults := output_distance(scores, alone[length], allowed).faults(allowed):
                findings.append(Finding(case, f"scores differ from alone: {'; '.join(faults)}"))
                break
    return findings, cases


def _parts(alone: Scores, scores: Scores) -> str:
    pairs = enumerate(zip(alone.output, scores.output, strict=False))
    at = next(
        (number for number, (token, expected) in pairs if token != expected),
        min(len(alone.output), 0),
    )
    return f"token {at} is {scores.output[at : at + 1]}, was {alone.output[at : at + 1]}"


def unrefused(climb: LadderResult) -> Judged:
    """Find the requests beyond the context that were not refused, or without naming the limit.

    An answer that exactly fills the context is right, too: vLLM shortens `max_tokens`.
    """
    findings, cases = [], []
    for refusal in climb.refusals:
        tokens = refusal.prompt_tokens + refusal.output_tokens
        name = f"{refusal.name}: {tokens} tokens in a context of {climb.context}"
        case = Case(name, {"case": refusal.name})
        cases.append(case)
        room = climb.context - refusal.prompt_tokens
        if room > 0 and refusal.completion_tokens == room:
            continue
        if refusal.status is None:
            findings.append(Finding(case, f"no answer: {refusal.text}"))
        elif refusal.status not in REFUSAL:
            verb = "answered" if refusal.status < REFUSAL.start else "failed with"
            sentence = f"{verb} {refusal.status}, not refused: {refusal.text}"
            findings.append(Finding(case, sentence))
        elif str(climb.context) not in refusal.text.replace(",", ""):
            sentence = f"refused without naming the limit of {climb.context}: {refusal.text}"
            findings.append(Finding(case, sentence))
    return findings, cases


def unwell(climb: LadderResult, *, invariant: bool) -> Judged:
    """Find the rungs after which the server differs from before."""
    findings, cases = [], []
    rests = [(_case(rung), rung.rest) for rung in climb.rungs if rung.rest]
    rests += [(Case(f"after {refusal.name}"), refusal.rest) for refusal in climb.refusals]
    for case, rest in rests:
        cases.append(case)
        faults = rest_faults(climb.healthy, rest, invariant=invariant)
        findings += [Finding(case, sentence) for sentence in faults]
    return findings, cases


def still_in_flight(climb: LadderResult) -> int:
    """Return the most requests that were in flight when the server should have been at rest."""
    rests = [rung.rest for rung in climb.rungs if rung.rest]
    rests += [refusal.rest for refusal in climb.refusals]
    return max((rest.in_flight or 0 for rest in rests), default=0)


def hangs(climb: LadderResult) -> Judged:
    """Find the rung on which the server hung."""
    findings, cases = [], []
    for rung_result in climb.rungs:
        case = _case(rung_result)
        cases.append(case)
        if rung_result.hang:
            findings.append(Finding(case, hang_sentence(rung_result.hang)))
    return findings, cases


def growth(climb: LadderResult) -> int | None:
    """Return the bytes by which the server grew from one crowd to the next equal one.

    Earlier growth may be reserved memory that the server uses for the first time. None without two
    such crowds.
    """
    sizes = [
        rung.rest.memory_bytes for rung in climb.rungs[-2:] if rung.rest and rung.rest.memory_bytes
    ]
    alike = len({rung.rung for rung in climb.rungs[-2:]}) == 1
    return sizes[1] - sizes[0] if alike and len(sizes) > 1 else None


def _case(rung_result: RungResult) -> Case:
    rung = rung_result.rung
    return Case(rung.name, {"prefix": rung.prefix, "at_once": str(rung.at_once)})
