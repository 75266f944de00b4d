"""A server whose vectors are not those of the texts turns the pooling gate's own check red."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sweeps import named, sweep

from faults import pooling
from faults.booted import booted
from faults.proxy import Proxy
from pytest_vllm_gates.pooling.types import RERANK, SCORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.fault import Fault
    from faults.upstream import Upstream
    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

MODEL = ("--model", "qwen3-embedding")
GATES = ("-m", "boot or pooling")


@pytest.fixture(scope="module")
def upstream(
    gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upstream]:
    """A real server of a miniature that embeds, in place of the one that all others share."""
    folder = tmp_path_factory.mktemp("embedding")
    with booted("qwen3-embedding", folder, gates_progress) as upstream:
        yield upstream


@pytest.mark.parametrize(
    "fault",
    sweep(
        pooling.FAULTS.all,
        lambda fault: fault.name,
        named("pools_the_new_tokens_alone", "reverses_a_batch"),
    ),
)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *MODEL, *GATES)
    assert judged_run.gates("FAIL") == {"pooling"}, judged_run.complaints
    failures = judged_run.failed("pooling")
    assert fault.says in failures.get(fault.check, ""), failures
    assert {*failures} == {fault.check, *fault.besides}
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1


def has_fields_nobody_knows(exchange: Exchange) -> None:
    """The next release adds some."""
    for event in exchange.events:
        event["novelty"] = {"of": ["the", "next"]}


def makes_vectors_alone(exchange: Exchange) -> None:
    """A gateway has OpenAI's route and neither /score nor /rerank."""
    if exchange.path in {SCORE, RERANK}:
        exchange.status = 404
        exchange.events = [{"detail": "Not Found"}]


@pytest.mark.parametrize(
    "change",
    [
        has_fields_nobody_knows,
        pytest.param(makes_vectors_alone, marks=pytest.mark.slow),
    ],
)
def test_turns_nothing_red(
    change: Callable[[Exchange], None], upstream: Upstream, run: Run
) -> None:
    with Proxy(upstream, reply=change) as proxy:
        judged_run = run("--base-url", proxy.base_url, *MODEL, *GATES)
    assert judged_run.complaints == []
    assert judged_run.gates("PASS") | judged_run.gates("KNOWN") == {"boot", "pooling"}
    assert judged_run.status == 0
