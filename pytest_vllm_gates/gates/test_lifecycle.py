"""After another boot, a pause or the loss of its engine, the server answers and reports correctly.

Catches faults of rolling updates that tests rarely cover: a boot on used, broken or read-only
caches that gives other answers, or none; weights that sleep or a reload lost; answers that a
pause cuts; streams that neither continue nor end after SIGTERM; a wrong health check meanwhile.
Off by default: request it with --lifecycle, up to eleven boots more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.isolation.checks import fault, why_undecided
from pytest_vllm_gates.lifecycle import checks, checks_of_holds, checks_of_rolling
from pytest_vllm_gates.lifecycle.types import CacheState
from pytest_vllm_gates.outcomes import Blocked, Case, Finding, Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.lifecycle.types import StoppedServer
    from pytest_vllm_gates.session.against.cache_boots import CacheBoots
    from pytest_vllm_gates.session.against.held_boot import HeldBoot
    from pytest_vllm_gates.session.against.replicas import Replicas
    from pytest_vllm_gates.session.against.rolling_restart import RollingRestart
    from pytest_vllm_gates.session.against.second_boot import SecondBoot
    from pytest_vllm_gates.session.items import Evidence

pytestmark = [pytest.mark.lifecycle, pytest.mark.ends_the_server]


@pytest.fixture
def version(replicas: Replicas) -> str | None:
    """The version of vLLM that the run's own server reported before it ended."""
    return replicas.version


@pytest.fixture
def judged_boots(
    cache_boots: CacheBoots, replicas: Replicas, invariant: bool
) -> Callable[[CacheState], tuple[list[Finding], list[Case]]]:
    """Judge the boots on caches in a state."""
    return lambda state: checks.cache_boots(
        replicas.asked,
        cache_boots.of(state),
        invariant=invariant,
        compiles=cache_boots.compiles,
    )


def stopped_of(second_boot: SecondBoot) -> StoppedServer:
    """Return the end of the second boot; raises `Blocked` if it failed."""
    if second_boot.stopped is None:
        raise Blocked(f"the second boot failed: {second_boot.launch.explain()}")
    return second_boot.stopped


def held_of(held_boot: HeldBoot) -> HeldBoot:
    """Return the boot in development mode; raises `Blocked` if it failed."""
    if not held_boot.launch.ok:
        held_boot.launch.check_surroundings()
        raise Blocked(f"the boot in development mode failed: {held_boot.launch.explain()}")
    return held_boot


def test_boots_a_second_time(second_boot: SecondBoot, evidence: Evidence) -> None:
    evidence["boot"] = dict(second_boot.launch.boot.evidence)
    assert second_boot.launch.ok, (
        f"the first boot served, the second did not: {second_boot.launch.explain()}"
    )


def test_second_boot_answers_as_the_first(
    *, second_boot: SecondBoot, replicas: Replicas, checking: Checking, invariant: bool
) -> None:
    stopped_of(second_boot)
    checking(
        *checks.same_answers(replicas.asked, second_boot.answers, invariant=invariant),
        "a replica that boots on used caches gives other answers than one without caches",
    )


def test_open_streams_end_when_it_is_told_to_stop(
    second_boot: SecondBoot, checking: Checking, evidence: Evidence
) -> None:
    stopped = stopped_of(second_boot)
    evidence["stopped"] = stopped.as_evidence()
    checking(
        *checks.streams(stopped),
        "after SIGTERM a client does not learn that its answer has ended",
    )


def test_is_gone_within_the_grace_period(
    second_boot: SecondBoot, checking: Checking, evidence: Evidence
) -> None:
    stopped = stopped_of(second_boot)
    evidence["gone_s"] = stopped.gone_s
    checking(
        *checks.lingering(stopped), "after SIGTERM a server does not end in time and is killed"
    )


def test_says_that_it_takes_no_more(second_boot: SecondBoot, checking: Checking) -> None:
    checking(
        *checks.readiness(stopped_of(second_boot)),
        "a load balancer keeps sending requests to a server that refuses them",
    )


def test_boots_on_what_a_killed_boot_left(
    *,
    cache_boots: CacheBoots,
    judged_boots: Callable[[CacheState], tuple[list[Finding], list[Case]]],
    checking: Checking,
    evidence: Evidence,
) -> None:
    evidence["killed"] = cache_boots.killed().as_evidence()
    evidence["boots"] = [boot.name for boot in cache_boots.of(CacheState.KILLED)]
    checking(
        *judged_boots(CacheState.KILLED),
        "after a killed boot the next ones do not serve, or give other answers",
    )


def test_boots_on_garbled_caches(
    judged_boots: Callable[[CacheState], tuple[list[Finding], list[Case]]], checking: Checking
) -> None:
    checking(
        *judged_boots(CacheState.GARBLED),
        "a server with caches that a full disk broke does not serve, or answers wrongly",
        "delete the cache folder (VLLM_CACHE_ROOT): the next boot fills it again",
    )


def test_boots_on_caches_that_it_may_only_read(
    judged_boots: Callable[[CacheState], tuple[list[Finding], list[Case]]], checking: Checking
) -> None:
    checking(
        *judged_boots(CacheState.READ_ONLY),
        "a server with read-only caches does not serve, or answers wrongly",
    )


def test_answers_after_sleep_and_pause_as_before(
    *,
    held_boot: HeldBoot,
    replicas: Replicas,
    checking: Checking,
    invariant: bool,
    evidence: Evidence,
) -> None:
    holds = held_of(held_boot).holds
    refused = {held.name: held.refused for held in holds if held.refused}
    evidence["refused"], evidence["ignored"] = refused, held_boot.ignored
    if len(refused) == len(holds):
        raise NotApplicable(f"it supports no pause or sleep: {next(iter(refused.values()))}")
    checking(
        *checks_of_holds.answers(replicas.asked, holds, invariant=invariant),
        "after waking, resuming or reloading its weights, the server answers differently",
    )


def test_answers_under_way_survive_a_pause(
    *, held_boot: HeldBoot, checking: Checking, invariant: bool
) -> None:
    over = held_of(held_boot).over
    if not over:
        raise NotApplicable("the server cannot be paused")
    checking(
        *checks_of_holds.open_answers(over, invariant=invariant),
        "a pause changes or cuts an answer in progress",
    )


def test_alive_and_ready_are_told_apart(held_boot: HeldBoot, checking: Checking) -> None:
    holds = [held for held in held_of(held_boot).holds if held.waited]
    if not holds:
        raise NotApplicable("the server can neither sleep nor be paused")
    checking(
        *checks_of_holds.told(holds),
        "a paused server looks dead and is ended, or looks ready and gets requests",
    )


def test_slots_of_gone_clients_are_freed(
    held_boot: HeldBoot, checking: Checking, evidence: Evidence
) -> None:
    left = held_of(held_boot).left
    if left is None:
        raise NotApplicable("the server does not report how many requests run")
    evidence["left"] = left.as_evidence()
    if why := why_undecided(left, alone=True):
        raise Inconclusive(why)
    case = Case("clients leave after sleep and pause")
    found = [Finding(case, sentence)] if (sentence := fault(left)) else []
    checking(found, [case], "after sleep and pause, requests of disconnected clients run on")


def test_tells_that_its_engine_is_dead(
    held_boot: HeldBoot, checking: Checking, evidence: Evidence
) -> None:
    ended = held_of(held_boot).engine_ended
    if ended is None:
        raise NotApplicable("the server has no separate engine process")
    evidence["stopped"] = ended.as_evidence()
    findings, cases = checks.streams(ended)
    for check in (checks.lingering, checks.readiness):
        found, looked = check(ended, *checks.DEATH)
        findings += found
        cases += looked
    checking(findings, cases, "a server without an engine looks as if it served")


def test_replicas_restart_one_after_the_other(
    rolling_restart: RollingRestart, checking: Checking, evidence: Evidence
) -> None:
    evidence["rolling"] = rolling_restart.as_evidence()
    checking(
        *checks_of_rolling.restarts(rolling_restart.failures, rolling_restart.left),
        "a rolling update does not proceed",
    )


def test_a_rolling_restart_loses_no_request(
    *, rolling_restart: RollingRestart, replicas: Replicas, checking: Checking, invariant: bool
) -> None:
    if not rolling_restart.requests:
        raise Blocked("no replica served")
    checking(
        *checks_of_rolling.answers(
            replicas.asked,
            rolling_restart.requests,
            rolling_restart.unanswered,
            invariant=invariant,
        ),
        "clients lose requests, or get other answers, while replicas are restarted",
    )
