"""Under its planned load, the server answers every request correctly and in time.

Catches faults that single requests do not show: a server that dies, hangs or slows down under
concurrent requests, streams that stop, tokens that are lost, answers that reach another client.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.load import arrivals, checks, drift, latency, ramp as ramps
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.plans import Traffic
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.load.types import LoadResult
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch

pytestmark = pytest.mark.load

NO_RAMP = "no ramp was run: request it with --ramp, unless the load before it failed"
NO_RATE = "no rate is planned: rate = N (requests a second) under [load] of the lane or the family"
NO_SOAK = "no soak was run: request it with --soak 30m, unless the load before it failed"


def test_every_request_is_answered_whole(
    loaded: LoadResult, traffic: Traffic, checking: Checking, evidence: Evidence
) -> None:
    evidence["traffic"] = traffic.model_dump(mode="json")
    kept_back = [why for phase in loaded.phases if (why := arrivals.send_fault(phase))]
    if kept_back:
        raise Inconclusive(kept_back[0])
    findings_and_cases = checks.unanswered(loaded, traffic.limits)
    checking(
        *findings_and_cases,
        "under the planned load requests are not answered, or not to their last token",
    )


def test_nothing_hangs_under_load(loaded: LoadResult, checking: Checking) -> None:
    checking(*checks.hangs(loaded), "requests hang for ever, and no health check reports it")


def test_requests_go_out_as_asked(loaded: LoadResult, evidence: Evidence) -> None:
    evidence["arrivals"] = {phase.name: arrivals.as_evidence(phase) for phase in loaded.phases}
    if not any(phase.schedule for phase in loaded.phases):
        raise NotApplicable("the load failed before any request had a planned time")
    wrong = [why for phase in loaded.phases if (why := arrivals.schedule_fault(phase))]
    if wrong:
        raise Inconclusive(f"{wrong[0]}; run it on a machine that is less busy, or plan less load")


def test_tokens_are_as_many_as_the_server_counts(
    loaded: LoadResult, launch: Launch, checking: Checking
) -> None:
    findings, cases = checks.uncounted(loaded)
    if not cases:
        raise NotApplicable("the server does not count tokens, or not every request was answered")
    _check_alone(findings, launch, loaded)
    checking(findings, cases, "tokens are lost between the engine and the client")


def test_planned_streams_run_at_once(
    loaded: LoadResult, launch: Launch, checking: Checking, evidence: Evidence
) -> None:
    evidence["looks"] = loaded.looks()
    findings, cases = checks.below_concurrency(loaded)
    if not cases:
        raise NotApplicable(
            "the server does not report running and waiting requests, or was too quick"
        )
    _check_alone(findings, launch, loaded)
    checking(findings, cases, "fewer requests run at once than the deployment plans")


def test_no_stream_stops_while_others_go_on(
    loaded: LoadResult, launch: Launch, checking: Checking
) -> None:
    findings, cases = checks.stalled(loaded)
    _check_alone(findings, launch, loaded)
    checking(findings, cases, "some answers pause in the middle")


def test_latencies_are_within_their_limits(
    loaded: LoadResult, launch: Launch, traffic: Traffic, checking: Checking, evidence: Evidence
) -> None:
    evidence["figures"] = {
        phase.name: latency.figures(phase, traffic.limits) for phase in loaded.phases
    }
    findings, cases = checks.slow(loaded, traffic.limits)
    if not cases:
        raise NotApplicable("no request was answered, so no latency was measured")
    if findings and (late := checks.client_was_late(loaded, traffic.limits)):
        raise Inconclusive(f"{late}: the client was slow; run it on a less busy machine")
    _check_alone(findings, launch, loaded)
    checking(findings, cases, "under the planned load answers come too late")


def test_load_changes_no_answer(*, loaded: LoadResult, checking: Checking, invariant: bool) -> None:
    checking(
        *checks.changed(loaded, invariant=invariant),
        "under load an answer differs from the one alone",
    )


def test_no_answer_under_load_holds_what_is_anothers(
    loaded: LoadResult, checking: Checking
) -> None:
    checking(*checks.mixed_tickets(loaded), "under load a client gets another's text")


def test_server_comes_to_rest_after_load(
    *, loaded: LoadResult, launch: Launch, checking: Checking, invariant: bool
) -> None:
    findings, cases = checks.not_recovered(loaded, invariant=invariant)
    if not cases:
        raise NotApplicable("the server hangs and never came to rest")
    _check_alone(findings, launch, loaded)
    checking(findings, cases, "after the load, the server is not in its former state")


def test_planned_rate_is_below_capacity(
    loaded: LoadResult, launch: Launch, traffic: Traffic, evidence: Evidence
) -> None:
    if not loaded.ramp:
        raise NotApplicable(NO_RAMP)
    evidence["ramp"] = ramps.as_evidence(loaded.ramp)
    if traffic.rate is None:
        raise NotApplicable(NO_RATE)
    if why := ramps.undecided(traffic.rate, loaded.ramp):
        raise Inconclusive(why)
    wrong = ramps.below(traffic.rate, loaded.ramp)
    _check_alone(wrong, launch, loaded)
    assert not wrong, wrong


def test_soak_does_not_slow_down(loaded: LoadResult, traffic: Traffic, evidence: Evidence) -> None:
    if not loaded.soak:
        raise NotApplicable(NO_SOAK)
    evidence["tokens_per_s"] = [round(block.output_tokens_per_s, 1) for block in loaded.soak]
    failed, requests = (
        sum(getattr(block, count) for block in loaded.soak) for count in ("failed", "requests")
    )
    assert failed <= traffic.limits.error_rate * requests, (
        f"{failed} of {requests} requests of the soak failed, the first with: "
        f"{next(block.error for block in loaded.soak if block.error)}"
    )
    soak_drift = drift.throughput(loaded.soak)
    if soak_drift is None:
        raise Inconclusive(f"{len(loaded.soak)} blocks are too few: soak longer")
    evidence["drift"] = dataclasses.asdict(soak_drift)
    wrong = drift.losing(soak_drift, traffic.limits.soak_loss)
    assert not wrong, wrong
    if why := drift.may_be_losing(soak_drift, traffic.limits.soak_loss):
        raise Inconclusive(why)


def test_soak_does_not_fill_memory(
    loaded: LoadResult, traffic: Traffic, evidence: Evidence
) -> None:
    if not loaded.soak:
        raise NotApplicable(NO_SOAK)
    evidence["memory_bytes"] = [block.memory_bytes for block in loaded.soak]
    soak_drift = drift.memory(loaded.soak)
    if soak_drift is None:
        raise NotApplicable("the server's processes cannot be seen, or the soak was too short")
    wrong = drift.growing(soak_drift, traffic.limits.soak_growth_mib)
    assert not wrong, wrong


def _check_alone(wrong: object, launch: Launch, loaded: LoadResult) -> None:
    """Raise `Inconclusive` for a fault that other clients' requests may have caused."""
    if wrong and not launch.owned and checks.other_clients(loaded):
        raise Inconclusive("other clients used this server meanwhile; judge it when it is idle")
