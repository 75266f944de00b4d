"""A server that loses what it stores of responses turns its own check red."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from e2e.gates import MODEL

from faults.booted import booted
from faults.conversations import SHORT
from faults.dialects import RESPONSES
from faults.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.gates import JudgedRun
    from faults.upstream import Upstream
    from pytest_vllm_gates.report.progress import Progress

pytestmark = [pytest.mark.real, pytest.mark.slow]

CHECK = "stored_responses_go_on"


@pytest.fixture(scope="module")
def upstream(
    gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upstream]:
    """A real server that stores responses, in place of the one that all tests share."""
    lane = {"env": {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}}
    folder = tmp_path_factory.mktemp("storing")
    with booted(MODEL, folder, gates_progress, lane) as upstream:
        yield upstream


def judged(upstream: Upstream, run: Run, **change: Any) -> JudgedRun:
    """Run the check through a proxy that changes requests or answers."""
    with Proxy(upstream, **change) as proxy:
        return run("--base-url", proxy.base_url, *SHORT, "-m", "dialects", "-k", CHECK)


def test_stored_responses_go_on(upstream: Upstream, run: Run) -> None:
    judged_run = judged(upstream, run)
    assert judged_run.gates("KNOWN") == {"dialects"}, judged_run.complaints


def forgets_the_previous_response(exchange: Exchange) -> None:
    """`previous_response_id` is dropped by a gateway."""
    exchange.body.pop("previous_response_id", None)


def test_stored_responses_have_to_go_on(upstream: Upstream, run: Run) -> None:
    judged_run = judged(upstream, run, request=forgets_the_previous_response)
    failures = judged_run.failed("dialects")
    assert "input tokens: the whole chat " in failures.get(CHECK, ""), judged_run.complaints


def retrieves_another_response(exchange: Exchange) -> None:
    """A shared store answers with another client's response."""
    if exchange.method == "GET" and exchange.path.startswith(f"{RESPONSES}/"):
        exchange.events[0]["id"] = "resp_of_somebody_else"


def retrieves_no_text(exchange: Exchange) -> None:
    """Only the envelope of a stored response is kept."""
    if exchange.method == "GET" and exchange.path.startswith(f"{RESPONSES}/"):
        exchange.events[0]["output"] = []


def cancels_nothing(exchange: Exchange) -> None:
    """A cancelled response goes on to its end."""
    if exchange.path.startswith(f"{RESPONSES}/") and exchange.events[0].get("background"):
        exchange.events[0]["status"] = "completed"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (retrieves_another_response, "another response is retrieved: 'resp_of_somebody_else'"),
        (retrieves_no_text, "retrieved Answer("),
        (cancels_nothing, "the status is 'completed' after it was cancelled"),
    ],
)
def test_a_store_has_to_keep_the_answer(
    change: Callable[[Exchange], None],
    says: str,
    upstream: Upstream,
    run: Run,
) -> None:
    judged_run = judged(upstream, run, reply=change)
    assert says in judged_run.failed("dialects").get(CHECK, ""), judged_run.complaints
