"""A gateway that drops or changes a sampling parameter turns exactly the sampling gate red."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults import sampling
from faults.conversations import SHORT
from faults.proxy import Proxy

if TYPE_CHECKING:
    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.fault import Fault
    from faults.upstream import Upstream

pytestmark = [pytest.mark.real, pytest.mark.slow]

# Other gates send greedy requests, on which these faults have no effect; one of them is run, too.
GATES = ("-m", "boot or sampling or reasoning")


@pytest.mark.parametrize("fault", sampling.FAULTS.all, ids=lambda fault: fault.name)
def test_turns_the_sampling_gate_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *SHORT, *GATES)
    assert judged_run.gates("FAIL") == fault.gates, judged_run.complaints
    assert any(fault.says in reason for reason in judged_run.reasons()), judged_run.complaints
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1


def test_a_refused_parameter_is_not_a_fault(upstream: Upstream, run: Run) -> None:
    def refuse(exchange: Exchange) -> None:
        if exchange.body.get("min_p"):
            exchange.body["min_p"] = 2.0  # vLLM answers with 400

    with Proxy(upstream, request=refuse) as proxy:
        judged_run = run("--base-url", proxy.base_url, *SHORT, "-m", "boot or sampling")
    green = judged_run.gates("PASS") | judged_run.gates("KNOWN")
    assert green == {"boot", "sampling"}, judged_run.complaints
