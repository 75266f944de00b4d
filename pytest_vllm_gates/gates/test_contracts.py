"""Routes, metrics, and the fields of answers and errors are those that clients rely on.

Catches a rename in a release that no answer shows: a dashboard that is empty, an alert that never
fires, a client that reads a missing field or mistakes one error for another.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.contracts import (
    checks,
    checks_counts,
    counted,
    http_shapes,
    model_names,
    shapes,
)
from pytest_vllm_gates.contracts.client import ContractClient
from pytest_vllm_gates.contracts.types import load
from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.outcomes import (
    Blocked,
    Case,
    Finding,
    Inconclusive,
    MissingGolden,
    NotApplicable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.contracts.types import ContractPlan, Observed
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.session.run import Run

pytestmark = pytest.mark.contracts

LISTED = 1000
"""The number of lines and of drift that are recorded of one kind of contract."""


@pytest.fixture(scope="module")
def plan() -> ContractPlan:
    """The requests of `contracts.toml`."""
    return load()


@pytest.fixture
def observed(
    server: Endpoint,
    family: Family,
    plan: ContractPlan,
    _run: Run,
    evidence: Evidence,
) -> Observed:
    """The server's routes and metrics, and its replies to the plan."""

    def observe() -> Observed:
        limit = _run.options.answer_tokens
        observation = ContractClient(server, family, plan, _run.conversations, limit).observe()
        evidence.update({"seconds": observation.seconds, "requests": observation.requests})
        return observation

    observation = _run.measured.once(family.name, "observation", observe)
    if all(reply.status is None for reply in observation.answers):
        raise Blocked(f"no request is answered: {observation.answers[0].text}")
    if observation.not_asked:
        evidence["not_asked"] = dict(observation.not_asked)
    return observation


@pytest.fixture
def check_contracts(
    *,
    observed: Observed,
    plan: ContractPlan,
    family: Family,
    golden: Goldens,
    checking: Checking,
    evidence: Evidence,
) -> Callable[..., None]:
    """Compare the contracts of one kind with the recorded ones, or record them."""

    def check(kind: str, now: shapes.Contracts, impact: str, *unpinned: str) -> None:
        name = f"contracts-{kind}"
        evidence["contracts"] = {kind: [*checks.lines(now), *unpinned][:LISTED]}
        text = None if golden.recording else golden.recorded(name)
        pinnable = checks.pinnable(kind, now)
        if text is None and not pinnable:
            raise NotApplicable(f"the server has no {kind} to pin")
        if golden.recording:
            golden.record(name, checks.written(kind, family.title, pinnable))
            return
        if text is None:
            raise MissingGolden(f"no golden {name!r}; record it: {golden.command}")
        try:
            recorded = checks.parsed(text)
        except CorruptGolden as error:
            pytest.fail(f"the golden {name!r} is corrupt: {error}", pytrace=False)
        evidence["drift"] = checks.drift(kind, recorded, pinnable)[:LISTED]
        pinned = checks.judgeable(kind, recorded, observed, plan)
        next_step = (
            f"If the change is intended, accept it: {golden.command}\n"
            f"If no client relies on it, delete its line from the golden {name!r}."
        )
        protocol = [each.reply for each in observed.http]
        replies = (*observed.answers, *observed.refusals, *protocol)
        checking(*checks.broken(kind, pinned, now, replies), impact, next_step)

    return check


def test_routes_are_served(observed: Observed, check_contracts: Callable[..., None]) -> None:
    impact = "a client's request for a route that was served gets 'not found'"
    check_contracts(shapes.ROUTES, shapes.routes(observed), impact)


def test_metrics_keep_their_names(
    observed: Observed, plan: ContractPlan, check_contracts: Callable[..., None]
) -> None:
    impact = "dashboards and alerts show nothing, or other values, for these metrics"
    check_contracts(shapes.METRICS, shapes.metrics(observed.metrics or {}, plan), impact)


def test_metrics_count_what_was_sent(
    *,
    server: Endpoint,
    launch: Launch,
    family: Family,
    trivial: Conversation,
    checking: Checking,
    evidence: Evidence,
) -> None:
    context = http.context(server, family.context.planned)
    traffic = counted.measure(server, trivial.body(family), context)
    evidence["rises"] = {series.shown: traffic.rise(series) for series in sorted(traffic.after)}
    evidence["requests"] = {request.name: asdict(request) for request in traffic.requests}
    cases = {request.name: Case(request.name, {}, request.body) for request in traffic.requests}
    cases |= {series.shown: Case(series.shown, {"metric": series.name}) for series in traffic.after}
    misread = [
        Finding(cases[request.name], sentence)
        for request, sentence in checks_counts.misread(traffic.requests)
    ]
    wrong = [
        Finding(cases[series.shown], sentence)
        for check in (checks_counts.miscounted, checks_counts.mistimed, checks_counts.uncached)
        for series, sentence in check(traffic)
    ]
    if wrong and not misread and not launch.owned:
        raise Inconclusive(
            f"{wrong[0].says}; others may use this server, or its metrics be those of one "
            "replica among several"
        )
    checking(
        [*misread, *wrong],
        [*cases.values()],
        "dashboards, alerts and bills do not count what was served",
    )


def test_answers_keep_their_fields(
    observed: Observed, plan: ContractPlan, check_contracts: Callable[..., None]
) -> None:
    impact = "clients read fields of answers that are gone or of another type"
    check_contracts(shapes.FIELDS, shapes.replies(observed.answers, plan), impact)


def test_answers_name_the_requested_model(
    server: Endpoint,
    family: Family,
    trivial: Conversation,
    checking: Checking,
    evidence: Evidence,
) -> None:
    asked = model_names.ask(server, trivial.body(family))
    evidence["names"], evidence["requests"] = list(asked.names), len(asked.answers) + 1
    cases = {
        (answer.requested, answer.mode): Case(
            f"name {asked.names.index(answer.requested) + 1}, {answer.mode}",
            {"answer": answer.mode},
            answer.request,
        )
        for answer in asked.answers
    }
    findings = [
        Finding(cases[answer.requested, answer.mode], sentence)
        for answer, sentence in asked.faults()
    ]
    impact = "An answer or a bill names another model than the requested one"
    checking(findings, [*cases.values()], impact)


def test_errors_keep_their_shape(
    observed: Observed, plan: ContractPlan, check_contracts: Callable[..., None]
) -> None:
    now = shapes.replies(observed.refusals, plan)
    messages = shapes.messages(observed.refusals, observed.model)
    impact = "clients that retry or give up by the kind of error get another kind"
    check_contracts(shapes.ERRORS, now, impact, *messages)


def test_protocol_is_the_recorded(
    observed: Observed, plan: ContractPlan, check_contracts: Callable[..., None]
) -> None:
    impact = "browsers, gateways and clients that use headers and methods are refused, or misled"
    check_contracts(http_shapes.HTTP, http_shapes.http(observed.http, plan), impact)
