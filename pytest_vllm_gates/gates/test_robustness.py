"""Wrong requests are refused with helpful errors, rare ones answered, and none harms the next.

Catches the one request that stops the service for all: a body that kills the engine, a parameter
that hangs it, a schema it answers with a stack trace, an error no client can parse.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.robustness import checks
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S, send_all
from pytest_vllm_gates.robustness.types import load_all

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.report.progress import Progress
    from pytest_vllm_gates.robustness.types import RobustnessResult
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.run import Run

pytestmark = pytest.mark.robustness

QUESTION = "What is the capital of France?"
QUESTION_TOKENS = 24


@pytest.fixture
def treatment(
    server: Endpoint,
    family: Family,
    _run: Run,
    gates_progress: Progress,
    evidence: Evidence,
) -> RobustnessResult:
    """Send every wrong and every rare request to the server; return the reactions."""

    def treat() -> RobustnessResult:
        completion_client = CompletionClient(server, ANSWER_LIMIT_S)

        # A grammar begins after the thinking: without thinking it applies to the first token.
        kwargs = family.thinking_kwargs("off")
        more = {"chat_template_kwargs": kwargs} if kwargs else {}

        def canary() -> Completion:
            messages = [{"role": "user", "content": QUESTION}]
            return completion_client.ask(
                {"messages": messages, "max_tokens": QUESTION_TOKENS, **more}
            )

        cases = load_all(_run.options.rootdir)
        begun = time.monotonic()
        context = http.context(server, family.context.planned)
        result = send_all(
            server,
            cases,
            more,
            context,
            canary,
            step=gates_progress.steps(f"{family.name}: robustness, requests"),
        )
        gates_progress.done()
        evidence["seconds"] = round(time.monotonic() - begun, 1)
        evidence["requests"] = len(cases) + completion_client.requests
        return result

    robustness_result = _run.measured.once(family.name, "treatment", treat)
    evidence["slowest"] = checks.slowest(robustness_result.reactions)
    if robustness_result.not_asked:
        evidence["not_asked"] = list(robustness_result.not_asked)
    return robustness_result


def test_no_request_breaks_the_server(treatment: RobustnessResult, checking: Checking) -> None:
    checking(
        *checks.unsurvived(treatment),
        "a client's request causes a server error, and may stop the service for all",
    )


def test_rare_requests_are_answered(treatment: RobustnessResult, checking: Checking) -> None:
    checking(
        *checks.turned_away(treatment),
        "a rare, valid request is not answered",
    )


def test_wrong_requests_are_refused(
    treatment: RobustnessResult, checking: Checking, evidence: Evidence
) -> None:
    evidence["refusals"] = checks.refusals(treatment.reactions)
    checking(
        *checks.accepted(treatment),
        "a client's mistake is answered as if the request were valid",
    )


def test_refusals_name_what_is_wrong(treatment: RobustnessResult, checking: Checking) -> None:
    checking(
        *checks.unexplained(treatment),
        "an error does not name what the client has to change",
    )


def test_others_are_answered_as_before(treatment: RobustnessResult, checking: Checking) -> None:
    assert not treatment.healthy.error, (
        f"an ordinary question was not answered before the wrong requests: "
        f"{treatment.healthy.error}"
    )
    checking(
        *checks.unwell(treatment),
        "after unusual requests, an ordinary one gets another answer",
    )
