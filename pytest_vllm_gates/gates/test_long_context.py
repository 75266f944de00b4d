"""The planned context works to the last token, alone and in company, and leaves nothing behind.

Catches what fits on paper only: a cache too small for the plan, a server that dies, hangs or cuts
at a length, positions that are off where nobody looks, memory that is not given back.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.long_context import (
    checks as long_context_checks,
    prompts as long_context_prompts,
)
from pytest_vllm_gates.numerics import checks as numerics_checks, client as numerics_client
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.fixtures.long_context import LadderSetup, Prompts
    from pytest_vllm_gates.long_context.types import LadderResult
    from pytest_vllm_gates.numerics.checks import Tolerance
    from pytest_vllm_gates.numerics.types import ReferenceScores
    from pytest_vllm_gates.session.boot import Launch
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.long_context


def test_planned_context_has_room(
    situation: LadderSetup, launch: Launch, climb: LadderResult, evidence: Evidence
) -> None:
    planned, at_once = situation.planned, situation.at_once
    room = launch.startup.concurrency_at(planned)
    evidence.update(planned_tokens=planned, planned_at_once=at_once, room_for=room)
    assert climb.context >= planned, (
        f"{planned} tokens of context are planned and the server takes {climb.context}: "
        "longer requests are refused"
    )
    assert room is None or room >= at_once, (
        f"{at_once} requests of {planned} tokens are planned at once, and the KV cache has room "
        f"for {room:.2f}: the others wait, or are begun anew\n"
        "give it more memory (--gpu-memory-utilization, VLLM_CPU_KVCACHE_SPACE), shorten "
        "--max-model-len, or plan for fewer ([context] concurrency of the family)"
    )
    preempted = {
        rung.rung.name: rung.preempted
        for rung in climb.rungs
        if rung.rung.at_once <= at_once and rung.preempted
    }
    assert not preempted, f"the KV cache was full and requests were begun anew: {preempted}"


def test_every_length_is_answered(
    climb: LadderResult, checking: Checking, evidence: Evidence
) -> None:
    evidence["rungs"] = [rung.as_evidence() for rung in climb.rungs]
    checking(
        *long_context_checks.unanswered(climb),
        "what the context has room for is not answered whole",
    )


def test_nothing_hangs(climb: LadderResult, checking: Checking) -> None:
    checking(*long_context_checks.hangs(climb), "people wait for ever, and no health check tells")


def test_prefix_and_company_change_nothing(
    *, climb: LadderResult, checking: Checking, tolerance: Tolerance, invariant: bool
) -> None:
    checking(
        *long_context_checks.changed(climb, tolerance, invariant=invariant),
        "a long prompt is continued otherwise on a warm prefix or in company than alone",
    )


def test_too_long_is_refused(climb: LadderResult, checking: Checking) -> None:
    checking(
        *long_context_checks.unrefused(climb),
        "who sends too much does not learn it, or harms the server",
    )


def test_server_comes_to_rest(*, climb: LadderResult, checking: Checking, invariant: bool) -> None:
    checking(
        *long_context_checks.unwell(climb, invariant=invariant),
        "after long prompts the server is not what it was before",
    )


def test_memory_does_not_grow(climb: LadderResult, evidence: Evidence) -> None:
    evidence["memory_bytes"] = [rung.rest.memory_bytes for rung in climb.rungs if rung.rest]
    grown = long_context_checks.growth(climb)
    if grown is None:
        raise NotApplicable("the server's processes cannot be seen")
    evidence["grown_bytes"] = grown
    assert grown <= long_context_checks.GROWTH_BYTES, (
        f"the server's memory grew by {grown / long_context_checks.MIB:.0f} MiB from one crowd of "
        f"{climb.rungs[-1].rung.at_once} full contexts to the next one like it, "
        f"{long_context_checks.GROWTH_BYTES / long_context_checks.MIB:.0f} MiB allowed: it will be killed one day"
    )


def test_long_positions_are_scored_as_by_the_reference(
    *,
    server: Endpoint,
    long_prompts: Prompts,
    scored_ends: ReferenceScores,
    tolerance: Tolerance,
    checking: Checking,
    evidence: Evidence,
) -> None:
    cases, findings, distances = [], [], {}
    for name, (ids, count) in long_prompts.items():
        expected = scored_ends.cases[name]
        positions = len(expected.prompt_logprobs)
        served = numerics_client.serve(server, ids, count, score_prompt=True)
        distance = numerics_checks.prompt_distance(
            long_context_prompts.end(served, positions), expected
        )
        case = Case(f"the last {positions} of {name}")
        cases.append(case)
        distances[name] = round(distance.mean, 4)
        findings += [Finding(case, says) for says in distance.faults(tolerance)]
    evidence["mean_distance_nats"] = distances
    checking(
        findings, cases, "the end of a long prompt is computed otherwise than by the reference"
    )


def test_a_needle_is_found(
    *,
    server: Endpoint,
    family: Family,
    situation: LadderSetup,
    checking: Checking,
    evidence: Evidence,
) -> None:
    needle, planned = situation.wanted.needle, situation.planned
    haystack = long_context_prompts.Haystack(server, family, situation.wanted)
    short = haystack.ask(needle.short_tokens, 0.5)
    evidence["in_a_short_text"] = short.shown
    if not short.found:
        raise NotApplicable(
            f"this checkpoint finds nothing even in {needle.short_tokens} tokens: {short.shown}"
        )
    cases, findings = [], []
    for length, depth in itertools.product((planned // 2, planned), needle.depths):
        case = Case(f"{length} tokens, at {depth:.0%} of them")
        cases.append(case)
        if not (hay := haystack.ask(length, depth)).found:
            findings.append(Finding(case, f"asked for {hay.number}, it says {hay.shown}"))
    checking(findings, cases, "what stands in a long text is not found")
