"""A server that shows the model another picture turns the vision gate's own check red."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from e2e.served import subject_of
from sweeps import named, sweep

from faults import vision
from faults.booted import booted
from faults.conversations import SHORT
from faults.proxy import Proxy
from pytest_vllm_gates.client.http import RENDER
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.fault import Fault
    from faults.upstream import Upstream
    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

MODEL = ("--model", "qwen3-vl")
GATES = ("-m", "boot or vision")


@pytest.fixture(scope="module")
def upstream(
    gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upstream]:
    """A real server of a miniature that sees, in place of the one that all others share."""
    _, checkpoint = subject_of("qwen3-vl")
    with warnings.catch_warnings(action="ignore"):  # those of transformers' own import
        ReferenceRenderer(checkpoint, {})
    folder = tmp_path_factory.mktemp("seeing")
    with booted("qwen3-vl", folder, gates_progress) as upstream:
        yield upstream


@pytest.mark.parametrize(
    "fault",
    sweep(
        vision.FAULTS.all,
        lambda fault: fault.name,
        named("swaps_images"),
    ),
)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *MODEL, *SHORT, *GATES)
    assert judged_run.gates("FAIL") == {"vision"}, judged_run.complaints
    failures = judged_run.failed("vision")
    assert fault.says in failures.get(fault.check, ""), failures
    assert {*failures} == {fault.check, *fault.besides}
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1


def gives_no_usage(exchange: Exchange) -> None:
    """Usage is an extra that a gateway may leave out."""
    for event in exchange.events:
        event.pop("usage", None)


def renders_nothing(exchange: Exchange) -> None:
    """The route that renders is off unless `--enable-scale-out` is set."""
    if exchange.path == RENDER:
        exchange.status = 403
        exchange.events = [{"detail": "Forbidden"}]


@pytest.mark.slow
@pytest.mark.parametrize("change", [gives_no_usage, renders_nothing])
def test_turns_nothing_red(
    change: Callable[[Exchange], None], upstream: Upstream, run: Run
) -> None:
    with Proxy(upstream, reply=change) as proxy:
        judged_run = run("--base-url", proxy.base_url, *MODEL, *SHORT, *GATES)
    assert judged_run.complaints == []
    assert judged_run.gates("PASS") | judged_run.gates("KNOWN") == {"boot", "vision"}
    assert judged_run.status == 0
