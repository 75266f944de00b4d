"""The planned context works to the last token, alone and in a batch, and leaves nothing behind.

Catches a context that fits only on paper: a cache too small for the plan, a server that dies,
hangs or cuts at a length, positions that are wrong far into a prompt, memory that is not released.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.long_context import checks
from pytest_vllm_gates.long_context.prompts import Haystack, last_scores
from pytest_vllm_gates.numerics.checks import prompt_distance
from pytest_vllm_gates.numerics.client import served_scores
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.fixtures.long_context import LadderSetup, Prompts
    from pytest_vllm_gates.long_context.types import LadderResult
    from pytest_vllm_gates.numerics.checks import Tolerance
    from pytest_vllm_gates.numerics.types import ReferenceScores
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch

pytestmark = pytest.mark.long_context

OTHERS = "others may use this server; judge it when it is idle"


def test_planned_context_has_room(
    ladder_setup: LadderSetup, launch: Launch, ladder_result: LadderResult, evidence: Evidence
) -> None:
    planned, at_once = ladder_setup.planned, ladder_setup.at_once
    room = launch.startup.concurrency_at(planned)
    evidence.update(planned_tokens=planned, planned_at_once=at_once, room_for=room)
    assert ladder_result.context >= planned, (
        f"{planned} tokens of context are planned and the server accepts {ladder_result.context}: "
        "longer requests are refused"
    )
    assert room is None or room >= at_once, (
        f"{at_once} requests of {planned} tokens are planned at once, and the KV cache fits "
        f"{room:.2f}: the others wait, or are preempted\n"
        "give it more memory (--gpu-memory-utilization, VLLM_CPU_KVCACHE_SPACE), shorten "
        "--max-model-len, or plan for fewer ([context] concurrency of the family)"
    )
    preempted = {
        rung.rung.name: rung.preempted
        for rung in ladder_result.rungs
        if rung.rung.at_once <= at_once and rung.preempted
    }
    if preempted and not launch.owned and (count := checks.still_in_flight(ladder_result)):
        raise Inconclusive(f"{OTHERS}: {count} requests were in flight beside these")
    assert not preempted, f"the KV cache was full and requests were preempted: {preempted}"


def test_every_length_is_answered(
    ladder_result: LadderResult, checking: Checking, evidence: Evidence
) -> None:
    evidence["rungs"] = [rung.as_evidence() for rung in ladder_result.rungs]
    checking(
        *checks.unanswered(ladder_result),
        "a request that fits into the context gets no complete answer",
    )


def test_nothing_hangs(ladder_result: LadderResult, checking: Checking) -> None:
    checking(*checks.hangs(ladder_result), "requests hang for ever, and no health check reports it")


def test_prefix_and_company_change_nothing(
    *, ladder_result: LadderResult, checking: Checking, tolerance: Tolerance, invariant: bool
) -> None:
    checking(
        *checks.changed(ladder_result, tolerance, invariant=invariant),
        "a long prompt's continuation differs on a warm prefix or in a batch",
    )


def test_too_long_is_refused(ladder_result: LadderResult, checking: Checking) -> None:
    checking(
        *checks.unrefused(ladder_result),
        "a prompt that is too long gets no clear error, or harms the server",
    )


def test_server_comes_to_rest(
    *, ladder_result: LadderResult, launch: Launch, checking: Checking, invariant: bool
) -> None:
    findings, cases = checks.unwell(ladder_result, invariant=invariant)
    if findings and not launch.owned and (count := checks.still_in_flight(ladder_result)):
        raise Inconclusive(f"{OTHERS}: {count} requests in flight may be theirs")
    checking(findings, cases, "after long prompts, the server is not in its former state")


def test_memory_does_not_grow(ladder_result: LadderResult, evidence: Evidence) -> None:
    evidence["memory_bytes"] = [rung.rest.memory_bytes for rung in ladder_result.rungs if rung.rest]
    grown = checks.growth(ladder_result)
    if grown is None:
        raise NotApplicable("the server's processes cannot be seen")
    evidence["grown_bytes"] = grown
    allowed = checks.GROWTH_BYTES
    assert grown <= allowed, (
        f"the server's memory grew by {grown / checks.MIB:.0f} MiB between two equal crowds of "
        f"{ladder_result.rungs[-1].rung.at_once} full contexts, "
        f"{allowed / checks.MIB:.0f} MiB allowed: it will run out of memory"
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
        served = served_scores(server, ids, count, score_prompt=True)
        distance = prompt_distance(last_scores(served, positions), expected)
        case = Case(f"the last {positions} of {name}")
        cases.append(case)
        distances[name] = round(distance.mean, 4)
        findings += [Finding(case, fault) for fault in distance.faults(tolerance)]
    evidence["mean_distance_nats"] = distances
    checking(findings, cases, "the scores at the end of a long prompt differ from the reference")


def test_a_needle_is_found(
    *,
    server: Endpoint,
    family: Family,
    ladder_setup: LadderSetup,
    checking: Checking,
    evidence: Evidence,
) -> None:
    needle, planned = ladder_setup.plan.needle, ladder_setup.planned
    haystack = Haystack(server, family, ladder_setup.plan)
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
        if not (answer := haystack.ask(length, depth)).found:
            findings.append(
                Finding(case, f"the number is {answer.number}, the answer is {answer.shown}")
            )
    checking(findings, cases, "a fact in a long text is not found")
