"""A server that mixes adapters up turns exactly its check red, on a real server with two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e.served import subject_of
from sweeps import named, sweep

from faults import adapters
from faults.booted import booted
from faults.proxy import Proxy
from pytest_vllm_gates.adapters import files
from pytest_vllm_gates.features import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.conftest import Run
    from faults.fault import Fault
    from faults.upstream import Upstream
    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

MODEL = "qwen3.5"
GATES = ("--checkpoint", "miniature", "-m", "adapters")
TOLD = ("ignores_an_adapter", "mixes_adapters_up_in_a_batch")


@pytest.fixture(scope="module")
def upstream(
    gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upstream]:
    """A real server with both adapters of the miniature, in place of the shared one."""
    _, checkpoint = subject_of(MODEL)
    (feature,) = (one for one in catalog.load() if one.name == "lora-two")
    serve = {
        "enable_prefix_caching": True,
        **feature.serve,
        **files.flags(files.of(checkpoint, {}, tmp_path_factory.getbasetemp())),
    }
    folder = tmp_path_factory.mktemp("adapters")
    lane = {"serve": serve, "env": feature.env}
    with booted(MODEL, folder, gates_progress, lane) as upstream:
        yield upstream


@pytest.mark.parametrize(
    "fault", sweep(adapters.FAULTS.all, lambda fault: fault.name, named(*TOLD))
)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    adapters.Server.reset(upstream.model)
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *GATES)
    failures = judged_run.failed("adapters")
    assert {*failures} == {fault.check, *fault.besides}, judged_run.complaints
    assert fault.says in failures[fault.check], failures
    assert judged_run.gates("FAIL") == {"adapters"}
    assert judged_run.verdict["promotion"] == "REJECT"


def test_a_healthy_server_is_green(upstream: Upstream, run: Run) -> None:
    with Proxy(upstream) as proxy:
        judged_run = run("--base-url", proxy.base_url, *GATES)
    assert judged_run.gates("PASS") == {"adapters"}, judged_run.complaints
    assert judged_run.complaints == []
