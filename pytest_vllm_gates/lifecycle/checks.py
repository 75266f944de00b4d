"""Compares later boots with the first, and judges a server that was stopped while it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.client.sameness import MARGIN_NATS, compare, nats_apart
from pytest_vllm_gates.lifecycle.types import GRACE_S, StreamEnd
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.lifecycle.types import CacheBoot, StoppedServer

OK = 200
STOPPED = "SIGTERM with open streams"
DEATH = ("the engine's death with open streams", "the engine's death")
"""The case's name, and the event from which seconds are counted."""
INVARIANT_NATS = 0.02
"""The effect of bfloat16 rounding on a log-probability of the same batch."""
AT_ONCE_S = 1.0
"""How long a server may take to notice that it is to stop."""
TOLD = {
    StreamEnd.CUT: "ends after {chunks} events as if it were whole, without finish_reason and "
    "[DONE]: the client mistakes a part for the whole answer",
    StreamEnd.HANGS: "stops after {chunks} events, and its connection stays open: the client "
    "waits for its own timeout",
}


def same_answers(
    first: Sequence[tuple[str, Completion]],
    again: Sequence[Completion],
    *,
    invariant: bool,
    where: str = "",
    traits: Mapping[str, str] | None = None,
) -> tuple[list[Finding], list[Case]]:
    """Compare answers with earlier ones, paired with their questions: texts, tokens, nats.

    Questions without an earlier answer are not compared. `where` names what answered `again`;
    `traits` are further ones of each case. If answers are `invariant`, log-probabilities may differ
    by rounding only, else by as much as in another batch.
    """
    findings, cases = [], []
    most_nats = INVARIANT_NATS if invariant else MARGIN_NATS
    for (question, before), after in zip(first, again, strict=True):
        if before.error:
            continue
        name = f"{question} ({where})" if where else question
        named = {"where": where} if where else {}
        case = Case(name, {**named, **(traits or {})}, before.request)
        cases.append(case)
        fault = compare(before, after, invariant=invariant).fault
        apart = nats_apart(before, after)
        if fault:
            findings.append(Finding(case, fault))
        elif apart is not None and apart > most_nats:
            says = f"the same answer, and log-probabilities {apart:.2f} nats apart"
            findings.append(Finding(case, f"{says} ({most_nats} may be)"))
    return findings, cases


def cache_boots(
    first: Sequence[tuple[str, Completion]],
    boots: Sequence[CacheBoot],
    *,
    invariant: bool,
    compiles: bool,
) -> tuple[list[Finding], list[Case]]:
    """Return the boots on caches that did not serve, or gave answers that differ from the first.

    `compiles`: whether the server compiles its model, which some defects need.
    """
    findings, cases = [], []
    traits = {"compilation": "on" if compiles else "off"}
    for boot in boots:
        case = Case(boot.name, traits)
        cases.append(case)
        if boot.failure:
            findings.append(Finding(case, f"it does not serve: {boot.failure}"))
            continue
        other, asked = same_answers(
            first, boot.answers, invariant=invariant, where=boot.name, traits=traits
        )
        findings += other
        cases += asked
    return findings, cases


def streams(stopped: StoppedServer) -> tuple[list[Finding], list[Case]]:
    """Return the streams whose clients are not notified that the answer is over."""
    named = [(Case(f"stream {n}"), each) for n, each in enumerate(stopped.streams, 1)]
    findings = [
        Finding(case, TOLD[each.end].format(chunks=each.chunks))
        for case, each in named
        if each.end in TOLD
    ]
    return findings, [case for case, _ in named]


def lingering(
    stopped: StoppedServer, what: str = STOPPED, since: str = "SIGTERM"
) -> tuple[list[Finding], list[Case]]:
    """Return whether the process outlived its grace period."""
    case = Case(what)
    if stopped.gone_s is not None:
        return [], [case]
    hanging = sum(each.end is StreamEnd.HANGS for each in stopped.streams)
    waits = f", and {hanging} connections are open" if hanging else ""
    says = (
        f"{GRACE_S:.0f} s after {since} the process is still there{waits}: Kubernetes kills it "
        "then (terminationGracePeriodSeconds), whatever it was about to do"
    )
    return [Finding(case, says)], [case]


def readiness(
    stopped: StoppedServer, what: str = STOPPED, since: str = "SIGTERM"
) -> tuple[list[Finding], list[Case]]:
    """Return when `/health` first reported a server ready that had just refused a request."""
    case = Case(what)
    for probe in stopped.probes:
        if probe.at_s >= AT_ONCE_S and probe.health == OK and probe.chat != OK:
            answered = "was refused" if probe.chat is None else f"was answered {probe.chat}"
            after = f"{probe.at_s:.1f} s after {since}"
            says = f"{after}, /health returns 200 after a request {answered}"
            return [Finding(case, says)], [case]
    return [], [case]
