"""Routes, metrics, fields of answers and errors are those that clients and dashboards rely on.

Catches the rename in a release that no answer shows: a dashboard that is empty, an alert that never
fires, a client that reads a field which is no longer there or takes one error for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.contracts import checks as judge, shapes, types as facts
from pytest_vllm_gates.contracts.client import ContractClient
from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.outcomes import Blocked, Case, Finding, MissingGolden, NotApplicable
from pytest_vllm_gates.robustness import sampling_effects as judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.contracts.types import ContractPlan, Observed
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.run import Run

pytestmark = pytest.mark.contracts

LISTED = 1000
"""Lines and drift that are written down of one kind of contract."""


@pytest.fixture(scope="module")
def plan() -> ContractPlan:
    """What is asked."""
    return facts.load()


@pytest.fixture(scope="module")
def observations() -> dict[str, Observed]:
    """What was found out about each family's server: once, whichever check asks first."""
    return {}


@pytest.fixture
def observed(
    observations: dict[str, Observed],
    server: Endpoint,
    family: Family,
    plan: ContractPlan,
    _run: Run,
    evidence: Evidence,
) -> Observed:
    """All that the server says of itself and answers to the plan."""
    if family.name not in observations:
        limit = _run.options.answer_tokens
        found = ContractClient(server, family, plan, _run.conversations, limit).observe()
        observations[family.name] = found
        evidence.update({"seconds": found.seconds, "requests": found.requests})
    found = observations[family.name]
    if all(reply.status is None for reply in found.answers):
        raise Blocked(f"nothing that is asked is answered: {found.answers[0].text}")
    if found.not_asked:
        evidence["not_asked"] = dict(found.not_asked)
    return found


@pytest.fixture
def hold(
    *,
    observed: Observed,
    plan: ContractPlan,
    family: Family,
    golden: Goldens,
    checking: Checking,
    evidence: Evidence,
) -> Callable[..., None]:
    """Hold what there is of one kind against what was recorded, or record it."""

    def held(what: str, now: shapes.Contracts, sees: str, *unpinned: str) -> None:
        name = f"contracts-{what}"
        evidence["contracts"] = {what: [*judge.lines(now), *unpinned][:LISTED]}
        text = None if golden.recording else golden.recorded(name)
        pinnable = judge.pinnable(what, now)
        if text is None and not pinnable:
            raise NotApplicable(f"the server has no {what} to pin")
        if golden.recording:
            golden.record(name, judge.written(what, family.title, pinnable))
            return
        if text is None:
            raise MissingGolden(f"no golden {name!r}; record it: {golden.command}")
        try:
            recorded = judge.parsed(text)
        except CorruptGolden as error:
            pytest.fail(f"the golden {name!r} is corrupt: {error}", pytrace=False)
        evidence["drift"] = judge.drift(what, recorded, pinnable)[:LISTED]
        pinned = judge.judgeable(what, recorded, observed, plan)
        next_step = (
            f"If that is meant, accept it: {golden.command}\n"
            f"If nobody relies on it, delete its line from the golden {name!r}."
        )
        replies = (*observed.answers, *observed.refusals)
        checking(*judge.broken(what, pinned, now, replies), sees, next_step)

    return held


def test_routes_are_served(observed: Observed, hold: Callable[..., None]) -> None:
    sees = "a client asks for what was served, and is told that there is no such thing"
    hold(shapes.ROUTES, shapes.routes(observed), sees)


def test_metrics_keep_their_names(
    observed: Observed, plan: ContractPlan, hold: Callable[..., None]
) -> None:
    sees = "dashboards and alerts show nothing, or something else, where these metrics were"
    hold(shapes.METRICS, shapes.metrics(observed.metrics or {}, plan), sees)


def test_answers_keep_their_fields(
    observed: Observed, plan: ContractPlan, hold: Callable[..., None]
) -> None:
    sees = "clients read fields of answers that are gone or of another type"
    hold(shapes.FIELDS, shapes.replies(observed.answers, plan), sees)


def test_errors_keep_their_shape(
    observed: Observed, plan: ContractPlan, hold: Callable[..., None]
) -> None:
    now = shapes.replies(observed.refusals, plan)
    says = shapes.messages(observed.refusals, observed.model)
    sees = "clients that tell errors apart, to try again or to give up, meet others"
    hold(shapes.ERRORS, now, sees, *says)


def test_sampling_parameters_have_their_effect(
    *,
    chat: Chat,
    server: Endpoint,
    family: Family,
    trivial: Conversation,
    checking: Checking,
    evidence: Evidence,
) -> None:
    effects = judged.ask(chat.client, server, trivial.body(family))
    evidence["refused"] = {effect.name: effect.refused for effect in effects if effect.refused}
    found = [effect for effect in effects if not effect.refused]
    cases = [Case(effect.name, {"parameter": effect.parameter}, effect.request) for effect in found]
    missing = [
        Finding(case, sentence)
        for case, effect in zip(cases, found, strict=True)
        for sentence in judged.missing(effect)
    ]
    sees = "A parameter that a client sets is taken and ignored"
    next_step = (
        "Send the request past any gateway, then without speculation: which of them drops it?"
    )
    checking(missing, cases, sees, next_step)
