"""Judges a second boot, and a server that was told to stop while it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.lifecycle.types import GRACE_S, StreamEnd
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.lifecycle.types import StoppedServer

OK = 200
STOPPED = "SIGTERM with open streams"
AT_ONCE_S = 1.0
"""How long a server may take to learn that it is to stop."""
TOLD = {
    StreamEnd.CUT: "ends after {chunks} events as if it were whole, without finish_reason and "
    "[DONE]: the client takes a part for the answer",
    StreamEnd.HANGS: "stops after {chunks} events, and its connection stays open: the client "
    "waits for its own timeout",
}


def second_boot(
    first: Sequence[tuple[str, Completion]], second: Sequence[Completion], *, invariant: bool
) -> tuple[list[Finding], list[Case]]:
    """Compare answers of the second boot with those of the first, which are beside its questions.

    What the first did not answer is no yardstick.
    """
    pairs = [
        (Case(question, {}, before.request), before, after)
        for (question, before), after in zip(first, second, strict=True)
        if not before.error
    ]
    faults = [
        (case, compare(before, after, invariant=invariant).fault) for case, before, after in pairs
    ]
    return [Finding(case, fault) for case, fault in faults if fault], [case for case, *_ in pairs]


def streams(stopped: StoppedServer) -> tuple[list[Finding], list[Case]]:
    """Return the streams whose clients do not learn that the answer is over."""
    named = [(Case(f"stream {n}"), each) for n, each in enumerate(stopped.streams, 1)]
    findings = [
        Finding(case, TOLD[each.end].format(chunks=each.chunks))
        for case, each in named
        if each.end in TOLD
    ]
    return findings, [case for case, _ in named]


def lingering(stopped: StoppedServer) -> tuple[list[Finding], list[Case]]:
    """Return whether the process was there for longer than its grace period."""
    case = Case(STOPPED)
    if stopped.gone_s is not None:
        return [], [case]
    hanging = sum(each.end is StreamEnd.HANGS for each in stopped.streams)
    waits = f", and {hanging} connections are open" if hanging else ""
    says = (
        f"{GRACE_S:.0f} s after SIGTERM the process is still there{waits}: Kubernetes kills it "
        "then (terminationGracePeriodSeconds), whatever it was about to do"
    )
    return [Finding(case, says)], [case]


def readiness(stopped: StoppedServer) -> tuple[list[Finding], list[Case]]:
    """Return when `/health` first called a server ready that had just refused a request."""
    case = Case(STOPPED)
    for probe in stopped.probes:
        if probe.at_s >= AT_ONCE_S and probe.health == OK and probe.chat != OK:
            answered = "was refused" if probe.chat is None else f"was answered {probe.chat}"
            says = (
                f"{probe.at_s:.1f} s after SIGTERM /health says 200 after a new request {answered}"
            )
            return [Finding(case, says)], [case]
    return [], [case]
