"""Checks of a server under its planned load: one function for each promise."""

from __future__ import annotations

import bisect
import itertools
import statistics
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.questions import ticket_faults
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.load import arrivals
from pytest_vllm_gates.load.latency import beyond, latency
from pytest_vllm_gates.long_context.checks import hang_sentence, rest_faults
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.catalog import plans
    from pytest_vllm_gates.load.types import AnsweredRequest, LoadResult, Phase

# Findings of a check, and all cases it judged.
Judged = tuple[list[Finding], list[Case]]

CHUNKS = "chunks"
"""The token source without counts from the server: one token for each piece of text."""
STALL_S = 1.0
STALL_GAPS = 10.0
"""A stall is so many times the usual time between two tokens."""
SILENT_SHARE = 0.25
"""The share of a stall in which no other stream had a token either: a busy machine stops all
streams; a stall of a single stream is caused by the server or its proxy."""
FEWEST_LOOKS = 10
RUNNING_SHARE = 0.8
"""The share of the open streams that has to run at one observation at least: between two requests
of a user the server has one less."""


def unanswered(loaded: LoadResult, limits: plans.LoadLimits) -> Judged:
    """Find phases in which too many requests failed, or answers have unexpected token counts."""
    findings, cases = [], []
    for phase in loaded.phases:
        case = _case(phase)
        cases.append(case)
        if phase.hang:
            continue  # `hangs` reports it
        failed = [answer.error for answer in phase.answers if answer.error]
        if len(failed) > limits.error_rate * len(phase.answers):
            first = max(set(failed), key=failed.count)
            message = f"{len(failed)} of {len(phase.answers)} requests failed, mostly: {first}"
            findings.append(Finding(case, message))
        findings += [Finding(case, message) for message in itertools.islice(_miscounted(phase), 1)]
    return findings, cases


def _miscounted(phase: Phase) -> Iterator[str]:
    """Yield how answers differ from the token counts that were requested."""
    for answer in phase.answers:
        if answer.error or answer.counted_by == CHUNKS:
            continue
        lengths = phase.asked[answer.name]
        both = {answer.prompt_tokens, lengths.prompt_tokens}
        if lengths.output_tokens not in (None, answer.output_tokens):
            yield (
                f"{lengths.output_tokens} tokens were requested (ignore_eos), and "
                f"{answer.output_tokens} came"
            )
        elif answer.token_ids not in (None, answer.output_tokens):
            yield (
                f"{answer.output_tokens} tokens are counted and the ids of {answer.token_ids} came"
            )
        elif None not in both and len(both) > 1:
            yield (
                f"the prompt had {lengths.prompt_tokens} tokens and the server counts "
                f"{answer.prompt_tokens}"
            )


def uncounted(loaded: LoadResult) -> Judged:
    """Find phases in which the server's counters differ from the sums of the answers.

    Judges only phases in which every request was answered and no other test sent requests.
    """
    findings, cases = [], []
    for phase in loaded.phases:
        known = all(not answer.error and answer.counted_by != CHUNKS for answer in phase.answers)
        if not (phase.alone and known and phase.before and phase.after):
            continue
        case = _case(phase)
        cases.append(case)
        generated = phase.after.generated - phase.before.generated
        streamed = sum(answer.output_tokens for answer in phase.answers)
        if generated != streamed:
            message = f"{streamed} tokens came, and the server counts {generated} as generated"
            findings.append(Finding(case, message))
        read = phase.after.read - phase.before.read
        prompts = [
            phase.asked[answer.name].prompt_tokens or answer.prompt_tokens
            for answer in phase.answers
        ]
        sent = sum(prompt for prompt in prompts if prompt is not None)
        if None not in prompts and read != sent:
            message = f"prompts of {sent} tokens were sent, and the server counts {read} as read"
            findings.append(Finding(case, message))
    return findings, cases


def other_clients(loaded: LoadResult) -> bool:
    """Return whether other clients use the server, too.

    Requests were in flight before a phase, or the server counts more than this run requested. A
    failed answer may have been counted, so that a phase with one proves nothing.
    """
    sums = [
        (
            phase.after.generated - phase.before.generated,
            sum(answer.output_tokens for answer in phase.answers),
        )
        for phase in loaded.phases
        if phase.alone and phase.before and phase.after
        if not any(answer.error for answer in phase.answers)
    ]
    busy = any(phase.before and phase.before.in_flight for phase in loaded.phases if phase.alone)
    return busy or any(counted > streamed for counted, streamed in sums)


def below_concurrency(loaded: LoadResult) -> Judged:
    """Find phases in which far fewer requests ran than streams were open, even at the peak."""
    findings, cases = [], []
    for phase in loaded.phases:
        looks = [load for load in phase.seen if load.in_flight]
        if not phase.users or not phase.alone or len(looks) < FEWEST_LOOKS:
            continue
        case = _case(phase)
        cases.append(case)
        running = max(load.running for load in looks)
        if running < RUNNING_SHARE * phase.users:
            waiting = max(load.waiting for load in looks)
            queue = f"{waiting} wait in the server" if waiting else "the others wait before it"
            message = (
                f"{phase.users} concurrent streams are planned, and at most {running} run while "
                f"{queue}: check --max-num-seqs, the KV cache's room, and proxies before vLLM"
            )
            findings.append(Finding(case, message))
    return findings, cases


def slow(loaded: LoadResult, limits: plans.LoadLimits) -> Judged:
    """Find phases whose latencies, SLO attainment or preemptions are beyond their limits."""
    findings, cases = [], []
    for phase in loaded.phases:
        if phase.alone and any(map(latency, phase.answers)):
            case = _case(phase)
            cases.append(case)
            findings += [Finding(case, message) for message in beyond(phase, limits)]
    return findings, cases


def client_was_late(loaded: LoadResult, limits: plans.LoadLimits) -> str:
    """Return by how much the client was late, if that may explain the latencies; else ''."""
    late = ((phase.name, arrivals.late(phase, limits)) for phase in loaded.phases)
    return next((f"{name}: {message}" for name, message in late if message), "")


def stalled(loaded: LoadResult) -> Judged:
    """Find streams that stopped while others went on."""
    findings, cases = [], []
    for phase in loaded.phases:
        complete = [answer for answer in phase.answers if answer.tokens]
        usual = [gap for request in complete for gap in _gaps([at for at, _ in request.tokens])]
        if not phase.alone or len(complete) < 2 or not usual:  # noqa: PLR2004 - one and another
            continue
        case = _case(phase)
        cases.append(case)
        least = max(STALL_S, STALL_GAPS * statistics.median(usual))
        stalls = [gap for request in complete for gap in _lone_gaps(request, complete, least)]
        if stalls:
            message = (
                f"{len(stalls)} of {len(complete)} streams stopped for up to {max(stalls):.1f} s "
                f"while others went on; {1000 * statistics.median(usual):.0f} ms are usual"
            )
            findings.append(Finding(case, message))
    return findings, cases


def _gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _lone_gaps(
    request: AnsweredRequest, streams: Sequence[AnsweredRequest], least: float
) -> Iterator[float]:
    """Yield the longest gap of a stream if it is a stall: the others' tokens came meanwhile."""
    times = [at for at, _ in request.tokens]
    long = [pair for pair in itertools.pairwise(times) if pair[1] - pair[0] >= least]
    if not long:
        return
    others = sorted(at for stream in streams if stream is not request for at, _ in stream.tokens)
    for begun, ended in long:
        meanwhile = others[bisect.bisect(others, begun) : bisect.bisect(others, ended)]
        silence = max(_gaps([begun, *meanwhile, ended]))
        if silence <= SILENT_SHARE * (ended - begun):
            yield ended - begun
            return


def changed(loaded: LoadResult, *, invariant: bool) -> Judged:
    """Find the questions whose answers under load differ from those without load."""
    findings, cases = [], []
    for probe in loaded.probes:
        if probe.expected is None:
            continue
        case = Case(probe.name, {"case": probe.name}, probe.completion.request)
        cases.append(case)
        if message := compare(probe.expected, probe.completion, invariant=invariant).fault:
            findings.append(Finding(case, message))
    return findings, cases


def mixed_tickets(loaded: LoadResult) -> Judged:
    """Find the tickets without their own nonce or with another request's."""
    findings, cases = [], []
    nonces = [probe.nonce for probe in loaded.probes if probe.nonce]
    for probe in loaded.probes:
        if probe.nonce is None:
            continue
        case = Case(probe.name, {"case": probe.name}, probe.completion.request)
        cases.append(case)
        wrong = ticket_faults(probe.completion, nonces, nonces.index(probe.nonce))
        findings += [Finding(case, message) for message in wrong]
    return findings, cases


def hangs(loaded: LoadResult) -> Judged:
    """Find the phase in which the server stopped making progress."""
    findings, cases = [], []
    for phase in (*loaded.phases, *(step.phase for step in loaded.ramp)):
        case = _case(phase)
        cases.append(case)
        if phase.hang:
            findings.append(Finding(case, hang_sentence(phase.hang)))
    return findings, cases


def not_recovered(loaded: LoadResult, *, invariant: bool) -> Judged:
    """Find how the server differs from before the load once it is idle again."""
    if loaded.rest is None:
        return [], []  # it hangs, which `hangs` reports
    case = Case("when all was over")
    faults = rest_faults(loaded.healthy, loaded.rest, invariant=invariant)
    return [Finding(case, message) for message in faults], [case]


def _case(phase: Phase) -> Case:
    return Case(phase.name, {"case": phase.name})
