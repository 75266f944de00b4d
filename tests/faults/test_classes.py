"""A server whose scores or labels are not those of the inputs turns its own check red."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sweeps import named, sweep

from faults import classes
from faults.booted import booted
from faults.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.conftest import Run
    from faults.fault import Fault
    from faults.upstream import Upstream
    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

GATES = ("-m", "boot or pooling")
RERANKER, CLASSIFIER = "qwen3-reranker", "qwen3-reranker/classifier"
MINIATURES = {RERANKER: "qwen3-reranker", CLASSIFIER: "qwen3-classifier"}
"""The miniature of each tested family."""
ALWAYS = named("turns_batches_round")


@pytest.fixture(scope="module")
def family(request: pytest.FixtureRequest) -> str:
    """The tested family."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def upstream(
    family: str, gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upstream]:
    """A real server of one family's miniature, in place of the one that all others share."""
    folder = tmp_path_factory.mktemp("classes")
    with booted(MINIATURES[family], folder, gates_progress) as upstream:
        yield upstream


def turns_its_check_red(fault: Fault, family: str, upstream: Upstream, run: Run) -> None:
    classes.SEEN.clear()
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, "--model", family, *GATES)
    assert judged_run.gates("FAIL") == {"pooling"}, judged_run.complaints
    failures = judged_run.failed("pooling")
    assert fault.says in failures.get(fault.check, ""), failures
    assert {*failures} == {fault.check, *fault.besides}, failures
    assert judged_run.status == 1


@pytest.mark.parametrize("family", [RERANKER], indirect=True)
@pytest.mark.parametrize("fault", sweep(classes.SCORING.all, lambda fault: fault.name, ALWAYS))
def test_wrong_scores_are_found(fault: Fault, family: str, upstream: Upstream, run: Run) -> None:
    turns_its_check_red(fault, family, upstream, run)


@pytest.mark.parametrize("family", [CLASSIFIER], indirect=True)
@pytest.mark.parametrize("fault", sweep(classes.LABELLING.all, lambda fault: fault.name, ALWAYS))
def test_wrong_labels_are_found(fault: Fault, family: str, upstream: Upstream, run: Run) -> None:
    turns_its_check_red(fault, family, upstream, run)


@pytest.mark.slow
@pytest.mark.parametrize("family", [RERANKER, CLASSIFIER], indirect=True)
def test_a_healthy_server_passes(family: str, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream) as proxy:
        judged_run = run("--base-url", proxy.base_url, "--model", family, *GATES)
    assert judged_run.complaints == []
    assert judged_run.gates("PASS") == {"boot", "pooling"}
