"""What is wrong with a server under its planned load: one function for each promise."""

from __future__ import annotations

import bisect
import itertools
import statistics
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import questions as tickets
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.load import arrivals, latency as load_latency
from pytest_vllm_gates.load.latency import latency
from pytest_vllm_gates.long_context import checks as resting
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.catalog import plans
    from pytest_vllm_gates.load.types import AnsweredRequest, LoadResult, Phase

# What a check found, and all it looked at.
Judged = tuple[list[Finding], list[Case]]

CHUNKS = "chunks"
"""How tokens were counted where the server does not tell: one for each piece of text."""
STALL_S = 1.0
STALL_GAPS = 10.0
"""A stall is so many times the usual time between two tokens."""
SILENT_SHARE = 0.25
"""The share of a stall in which no other stream may have had a token either: a busy machine stops
all of them, and what stops one alone is the server's doing or its proxy's."""
FEWEST_LOOKS = 10
RUNNING_SHARE = 0.8
"""So many of the open streams are seen running at one of the looks at least: between two requests
of a user the server has one less."""


def unanswered(loaded: LoadResult, limits: plans.LoadLimits) -> Judged:
    """Find phases in which more requests failed than may, or came back with other counts."""
    found, cases = [], []
    for phase in loaded.phases:
        case = _case(phase)
        cases.append(case)
        if phase.hang:
            continue  # told by a check of its own
        failed = [answer.error for answer in phase.answers if answer.error]
        if len(failed) > limits.error_rate * len(phase.answers):
            first = max(set(failed), key=failed.count)
            says = f"{len(failed)} of {len(phase.answers)} requests failed, mostly: {first}"
            found.append(Finding(case, says))
        found += [Finding(case, says) for says in itertools.islice(_miscounted(phase), 1)]
    return found, cases


def _miscounted(phase: Phase) -> Iterator[str]:
    """Yield which answers have other tokens than were asked for."""
    for answer in phase.answers:
        if answer.error or answer.counted_by == CHUNKS:
            continue
        lengths = phase.asked[answer.name]
        both = {answer.prompt_tokens, lengths.prompt_tokens}
        if lengths.output_tokens not in (None, answer.output_tokens):
            yield (
                f"{lengths.output_tokens} tokens were asked for, whatever ends an answer, and "
                f"{answer.output_tokens} came"
            )
        elif answer.token_ids not in (None, answer.output_tokens):
            yield f"{answer.output_tokens} tokens are counted and the ids of {answer.token_ids} came"
        elif None not in both and len(both) > 1:
            yield (
                f"the prompt had {lengths.prompt_tokens} tokens and the server counts "
                f"{answer.prompt_tokens}"
            )


def uncounted(loaded: LoadResult) -> Judged:
    """Find phases in which the server's counters moved by other sums than its answers have.

    Looked at where all was answered and nobody else of this run asked.
    """
    found, cases = [], []
    for phase in loaded.phases:
        known = all(not answer.error and answer.counted_by != CHUNKS for answer in phase.answers)
        if not (phase.alone and known and phase.before and phase.after):
            continue
        case = _case(phase)
        cases.append(case)
        generated = phase.after.generated - phase.before.generated
        streamed = sum(answer.output_tokens for answer in phase.answers)
        if generated != streamed:
            says = f"{streamed} tokens came, and the server counts {generated} as generated"
            found.append(Finding(case, says))
        read = phase.after.read - phase.before.read
        prompts = [
            phase.asked[answer.name].prompt_tokens or answer.prompt_tokens
            for answer in phase.answers
        ]
        sent = sum(prompt for prompt in prompts if prompt is not None)
        if None not in prompts and read != sent:
            says = f"prompts of {sent} tokens were sent, and the server counts {read} as read"
            found.append(Finding(case, says))
    return found, cases


def others_came(loaded: LoadResult) -> bool:
    """Return whether a server counts more than was asked of it: somebody else asked, too."""
    sums = [
        (
            phase.after.generated - phase.before.generated,
            sum(answer.output_tokens for answer in phase.answers),
        )
        for phase in loaded.phases
        if phase.alone and phase.before and phase.after
    ]
    return any(counted > streamed for counted, streamed in sums)


def held_back(loaded: LoadResult) -> Judged:
    """Find phases in which far fewer requests ran than streams were open, at the best of times."""
    found, cases = [], []
    for phase in loaded.phases:
        looks = [load for load in phase.seen if load.in_flight]
        if not phase.users or not phase.alone or len(looks) < FEWEST_LOOKS:
            continue
        case = _case(phase)
        cases.append(case)
        running = max(load.running for load in looks)
        if running < RUNNING_SHARE * phase.users:
            waiting = max(load.waiting for load in looks)
            where = f"{waiting} wait in the server" if waiting else "the others wait before it"
            says = (
                f"{phase.users} streams at once are planned, and at most {running} run while "
                f"{where}: see --max-num-seqs, the KV cache's room, and what stands before vLLM"
            )
            found.append(Finding(case, says))
    return found, cases


def slow(loaded: LoadResult, limits: plans.LoadLimits) -> Judged:
    """Find phases whose latencies, SLO attainment or preemptions are beyond their limits."""
    found, cases = [], []
    for phase in loaded.phases:
        if phase.alone and any(map(latency, phase.answers)):
            case = _case(phase)
            cases.append(case)
            found += [Finding(case, says) for says in load_latency.beyond(phase, limits)]
    return found, cases


def client_was_late(loaded: LoadResult, limits: plans.LoadLimits) -> str:
    """Return by how much the client itself was late, where that may be what is seen; else ''."""
    late = ((phase.name, arrivals.late(phase, limits)) for phase in loaded.phases)
    return next((f"{name}: {says}" for name, says in late if says), "")


def stalled(loaded: LoadResult) -> Judged:
    """Find streams that stopped while others went on."""
    found, cases = [], []
    for phase in loaded.phases:
        whole = [answer for answer in phase.answers if answer.tokens]
        usual = [gap for request in whole for gap in _gaps([at for at, _ in request.tokens])]
        if not phase.alone or len(whole) < 2 or not usual:  # noqa: PLR2004 - one and another
            continue
        case = _case(phase)
        cases.append(case)
        least = max(STALL_S, STALL_GAPS * statistics.median(usual))
        stalls = [gap for request in whole for gap in _lone_gaps(request, whole, least)]
        if stalls:
            says = (
                f"{len(stalls)} of {len(whole)} streams stopped for up to {max(stalls):.1f} s "
                f"while others went on; {1000 * statistics.median(usual):.0f} ms are usual"
            )
            found.append(Finding(case, says))
    return found, cases


def _gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _lone_gaps(
    request: AnsweredRequest, whole: Sequence[AnsweredRequest], least: float
) -> Iterator[float]:
    """Yield the longest gap of a stream where it is a stall: the others' tokens came meanwhile."""
    times = [at for at, _ in request.tokens]
    long = [pair for pair in itertools.pairwise(times) if pair[1] - pair[0] >= least]
    if not long:
        return
    others = sorted(at for other in whole if other is not request for at, _ in other.tokens)
    for begun, ended in long:
        meanwhile = others[bisect.bisect(others, begun) : bisect.bisect(others, ended)]
        silence = max(_gaps([begun, *meanwhile, ended]))
        if silence <= SILENT_SHARE * (ended - begun):
            yield ended - begun
            return


def changed(loaded: LoadResult, *, invariant: bool) -> Judged:
    """Find the questions answered otherwise under load than when nobody else asked."""
    found, cases = [], []
    for ride in loaded.rides:
        if ride.expected is None:
            continue
        case = Case(ride.name, {"case": ride.name}, ride.said.request)
        cases.append(case)
        if says := compare(ride.expected, ride.said, invariant=invariant).fault:
            found.append(Finding(case, says))
    return found, cases


def crossed(loaded: LoadResult) -> Judged:
    """Find the tickets that are not their own, or hold another's nonce."""
    found, cases = [], []
    nonces = [ride.nonce for ride in loaded.rides if ride.nonce]
    for ride in loaded.rides:
        if ride.nonce is None:
            continue
        case = Case(ride.name, {"case": ride.name}, ride.said.request)
        cases.append(case)
        wrong = tickets.faults(ride.said, nonces, nonces.index(ride.nonce))
        found += [Finding(case, says) for says in wrong]
    return found, cases


def hangs(loaded: LoadResult) -> Judged:
    """Find the phase in which nothing moved any more."""
    found, cases = [], []
    for phase in (*loaded.phases, *(step.phase for step in loaded.ramp)):
        case = _case(phase)
        cases.append(case)
        if phase.hang:
            found.append(Finding(case, resting.hang_sentence(phase.hang)))
    return found, cases


def unwell(loaded: LoadResult, *, invariant: bool) -> Judged:
    """Find what the server is afterwards that it was not before."""
    if loaded.rest is None:
        return [], []  # it hangs, which is told
    case = Case("when all was over")
    faults = resting.rest_faults(loaded.healthy, loaded.rest, invariant=invariant)
    return [Finding(case, says) for says in faults], [case]


def _case(phase: Phase) -> Case:
    return Case(phase.name, {"case": phase.name})
