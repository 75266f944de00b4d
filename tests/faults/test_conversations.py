"""Every fault in a real server's conversations turns its own check red, and no other gate."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
from sweeps import first_of_each, named, sweep

from faults import chunks, envelope, frames, innocent, reasoning, stop, streaming, structured, tools
from faults.conversations import ARRIVAL, GATES, NOT_ARRIVAL, NOT_LONG, SAMPLED, SHORT
from faults.proxy import Proxy

if TYPE_CHECKING:
    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.fault import Change, Fault
    from faults.upstream import Upstream

pytestmark = pytest.mark.real

FAULTS = [
    *streaming.FAULTS.all,
    *frames.FAULTS.all,
    *chunks.FAULTS.all,
    *envelope.FAULTS.all,
    *reasoning.FAULTS.all,
    *tools.FAULTS.all,
    *stop.FAULTS.all,
    *structured.FAULTS.all,
]
OF_SCORED = [*chunks.FAULTS.all, *envelope.FAULTS.all]
GATE = attrgetter("gate")
EACH_GATE = first_of_each(FAULTS, GATE)
FIRST = [fault for fault in FAULTS if EACH_GATE(fault) or fault.name == "mixes_choices_up"]


# These check requests whose answers show a fault without a comparison; others show in the walk.
OF_REQUESTED = {
    reasoning.CONTINUED, stop.NAMES, structured.CHOSEN, structured.UNLIKELY, structured.BLANKS,
    tools.STRICT, tools.NAMED,
}  # fmt: skip


def limited(fault: Fault, change: Change | None) -> Change | None:
    """Return a fault's change of the exchanges that are its own.

    Answers with log-probabilities are those of `chunks`, what shows alone those of OF_REQUESTED.
    """
    if change is None:
        return None

    def change_own(exchange: Exchange) -> None:
        scored = exchange.scored and fault not in OF_SCORED
        requested = exchange.requested and fault.check not in OF_REQUESTED
        if not (scored or requested):
            change(exchange)

    return change_own


def concerned(fault: Fault) -> list[str]:
    """Return the arguments that choose what a fault can reach."""
    if not fault.chats_only:
        return [*NOT_LONG]
    if fault.check in frames.PACED:
        return [*SHORT, *ARRIVAL]  # all else sees the real server's own answers
    # The text is changed, and not its timing: innocent changes are checked for that, too.
    arrival_options = () if fault.gate is None else NOT_ARRIVAL
    return [
        *SHORT,
        "-m",
        GATES,
        *arrival_options,
        *(SAMPLED if fault.check == tools.SAMPLED else ()),
    ]


@pytest.mark.parametrize(
    "fault",
    sweep(
        FAULTS,
        lambda fault: f"{fault.gate}-{fault.name}",
        lambda fault: fault in FIRST,
    ),
)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    request, reply = limited(fault, fault.request), limited(fault, fault.reply)
    with Proxy(upstream, request=request, reply=reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *concerned(fault))
    assert judged_run.gates("FAIL") == fault.gates, judged_run.complaints
    failures = judged_run.failed(fault.gate or "")
    assert fault.says in failures[fault.check], failures
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1


@pytest.mark.parametrize(
    "change",
    sweep(
        innocent.CHANGES.all,
        lambda fault: fault.name,
        named("has_fields_nobody_knows"),
    ),
)
def test_turns_nothing_red(change: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=change.request, reply=change.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *concerned(change))
    assert judged_run.complaints == []
    assert judged_run.status == 0
    assert judged_run.gates("PASS") | judged_run.gates("KNOWN") >= set(GATES.split(" or "))
