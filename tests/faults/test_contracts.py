"""Broken contracts fail their own check; additions fail none."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
from sweeps import named, sweep

from faults import contracts, innocent, protocol
from faults.conversations import GATES, NOT_ARRIVAL, SHORT
from faults.proxy import Proxy

if TYPE_CHECKING:
    from faults.conftest import Run
    from faults.fault import Fault
    from faults.upstream import Upstream

pytestmark = pytest.mark.real

FAULTS = [*contracts.FAULTS.all, *protocol.FAULTS.all]
# Another status for a client's mistake is as good to a user, and no innocent change to a program.
INNOCENT = [
    *contracts.CHANGES.all,
    *(fault for fault in innocent.CHANGES.all if fault.name != "refuses_in_a_shape_of_its_own"),
]


def concerned(fault: Fault) -> list[str]:
    """Return the arguments that choose the gates a fault can reach."""
    gates = GATES if fault.chats_only else "boot or robustness"
    return [*SHORT, "-m", f"contracts or {gates}", *NOT_ARRIVAL]


@pytest.mark.parametrize(
    "fault", sweep(FAULTS, attrgetter("name"), named("answers_as_another_model", "drops_a_field"))
)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *concerned(fault))
    assert judged_run.gates("FAIL") == fault.gates, judged_run.complaints
    failures = judged_run.failed("contracts")
    assert set(failures) == {fault.check, *fault.besides}, failures
    assert fault.says in failures[fault.check]
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1


@pytest.mark.parametrize("change", sweep(INNOCENT, attrgetter("name"), named("has_more_metrics")))
def test_turns_nothing_red(change: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=change.request, reply=change.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *SHORT, "-m", "contracts")
    assert judged_run.complaints == []
    assert judged_run.gates("PASS") == {"contracts"}
    assert judged_run.status == 0


def test_new_metrics_are_recorded_as_drift(upstream: Upstream, run: Run) -> None:
    (change,) = [fault for fault in INNOCENT if fault.name == "has_more_metrics"]
    with Proxy(upstream, reply=change.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *SHORT, "-m", "contracts")
    (family,) = judged_run.verdict["families"]
    (gate,) = [gate_report for gate_report in family["gates"] if gate_report["gate"] == "contracts"]
    (metrics_test,) = [test for test in gate["tests"] if contracts.METRICS in test["test"]]
    drift = metrics_test["evidence"]["drift"]
    novelty = {"where": "metrics", "name": "vllm:novelty", "ours": "gauge", "theirs": None}
    assert novelty in drift
    assert "vllm:novelty: gauge" in metrics_test["evidence"]["contracts"]["metrics"]
