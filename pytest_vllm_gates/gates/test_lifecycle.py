"""Booted a second time the server is the same, and told to stop it lets nobody hang.

Catches what a rolling update meets and a test never does: a second boot on used caches that answers
otherwise, streams that neither go on nor end after SIGTERM, a process that outstays its grace
period, a health check that lies meanwhile. Off unless it is asked for: --lifecycle, a boot more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.lifecycle import checks
from pytest_vllm_gates.outcomes import Blocked

if TYPE_CHECKING:
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.lifecycle.types import StoppedServer
    from pytest_vllm_gates.session.against.second_boot import SecondBoot
    from pytest_vllm_gates.session.items import Evidence

pytestmark = [pytest.mark.lifecycle, pytest.mark.ends_the_server]


@pytest.fixture
def version(second_boot: SecondBoot) -> str | None:
    """The version of vLLM that the run's own server told before it ended."""
    return second_boot.version


def stopped_of(second_boot: SecondBoot) -> StoppedServer:
    """Return what became of the second boot; raises `Blocked` where there was none."""
    if second_boot.stopped is None:
        raise Blocked(f"the second boot failed: {second_boot.launch.explain()}")
    return second_boot.stopped


def test_boots_a_second_time(second_boot: SecondBoot, evidence: Evidence) -> None:
    evidence["boot"] = dict(second_boot.launch.boot.evidence)
    assert second_boot.launch.ok, (
        f"the first boot served, the second did not: {second_boot.launch.explain()}"
    )


def test_second_boot_answers_as_the_first(
    *, second_boot: SecondBoot, checking: Checking, invariant: bool
) -> None:
    stopped_of(second_boot)
    first = [*zip(second_boot.questions, second_boot.first, strict=True)]
    checking(
        *checks.second_boot(first, second_boot.second, invariant=invariant),
        "a replica that boots on used caches gives other answers than one that boots on none",
    )


def test_open_streams_end_when_it_is_told_to_stop(
    second_boot: SecondBoot, checking: Checking, evidence: Evidence
) -> None:
    stopped = stopped_of(second_boot)
    evidence["stopped"] = stopped.as_evidence()
    checking(
        *checks.streams(stopped),
        "whoever reads an answer when the server is told to stop does not learn that it is over",
    )


def test_is_gone_within_the_grace_period(
    second_boot: SecondBoot, checking: Checking, evidence: Evidence
) -> None:
    stopped = stopped_of(second_boot)
    evidence["gone_s"] = stopped.gone_s
    checking(*checks.lingering(stopped), "a server that is told to stop is killed at last")


def test_says_that_it_takes_no_more(second_boot: SecondBoot, checking: Checking) -> None:
    checking(
        *checks.readiness(stopped_of(second_boot)),
        "a balancer goes on sending requests to a server that refuses them",
    )
