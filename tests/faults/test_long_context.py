"""Every fault at a long context turns the long-context gate red by its own check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults import long_context
from faults.proxy import Proxy

if TYPE_CHECKING:
    from faults.conftest import Run
    from faults.fault import Fault
    from faults.upstream import Upstream

pytestmark = [pytest.mark.real, pytest.mark.slow]

# The other gates send no prompt of this length, and the faults alter nothing else.
GATES = ("-m", "boot or long_context")
LIMIT = ("--stall-timeout", f"{long_context.LIMIT_S}")
FAULTS = long_context.FAULTS.all


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    limit = LIMIT if fault.check == "nothing_hangs" else ()
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *GATES, *limit)
    assert judged_run.gates("FAIL") == {"long_context"}, judged_run.complaints
    failures = judged_run.failed("long_context")
    assert fault.check in failures, failures
    assert fault.says in failures[fault.check], failures
    assert judged_run.status == 1


def test_unchanged_server_stays_green(upstream: Upstream, run: Run) -> None:
    with Proxy(upstream) as proxy:
        judged_run = run("--base-url", proxy.base_url, *GATES)
    assert judged_run.complaints == []
    assert judged_run.gates("PASS") | judged_run.gates("KNOWN") == {"boot", "long_context"}
