"""An answer depends on its own request alone, not on concurrent, earlier or cancelled ones.

Catches answers mixed up between concurrent requests, caches that return the state of another
prompt, batches that change an answer, and slots that are never free again.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.http import context
from pytest_vllm_gates.client.questions import (
    holds_anothers,
    load,
    question,
    ticket,
    ticket_faults,
)
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.isolation.cancel import disconnect
from pytest_vllm_gates.isolation.checks import fault, why_undecided
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.server.metrics import Metrics, cached_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.questions import Questions
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.session.run import Run

pytestmark = pytest.mark.isolation

REPEATS = 3
AT_ONCE = 16
BEGINNINGS = 8
PREFIX_CHARACTERS = 12_000


@pytest.fixture
def questions() -> Questions:
    """The questions and the filler of `isolation.toml`."""
    return load()


@pytest.fixture
def completion_client(server: Endpoint) -> CompletionClient:
    """The questions and the filler of `isolation.toml`."""
    return CompletionClient(server, ANSWER_LIMIT_S)


@pytest.fixture
def context_tokens(server: Endpoint, family: Family) -> int:
    """The server's context, in tokens."""
    return context(server, family.context.planned)


class AnswerComparisons:
    """Compares pairs of answers that should be the same, and keeps the findings."""

    def __init__(self, evidence: Evidence, *, invariant: bool) -> None:
        self.findings: list[Finding] = []
        self.cases: list[Case] = []
        self._evidence = evidence
        self._invariant = invariant
        evidence["batch_invariant"] = invariant
        evidence["equivalent"] = []

    def add(self, name: str, alone: Completion, completion: Completion) -> None:
        """Compare an answer with the answer to the same request alone."""
        case = Case(name, {"case": name}, completion.request)
        self.cases.append(case)
        sameness = compare(alone, completion, invariant=self._invariant)
        if sameness.fault:
            self.findings.append(Finding(case, sameness.fault))
        if sameness.parts_at is not None:
            difference = {
                "case": name,
                "parts_at": sameness.parts_at,
                "behind_nats": sameness.behind_nats,
            }
            self._evidence["equivalent"] = [*self._evidence["equivalent"], difference]


@pytest.fixture
def comparisons(evidence: Evidence, _run: Run) -> AnswerComparisons:
    """The comparison of answers, as strict as the lane allows."""
    return AnswerComparisons(evidence, invariant=_run.lane.batch_invariant)


def test_same_question_gets_the_same_answer(
    questions: Questions,
    completion_client: CompletionClient,
    comparisons: AnswerComparisons,
    family: Family,
    checking: Checking,
) -> None:
    body = question(family, questions.questions[0], questions.answer_tokens)
    first = _answered(completion_client.ask(body))
    for number in range(2, REPEATS + 1):
        comparisons.add(f"asked the {number}. time", first, completion_client.ask(body))
    checking(
        comparisons.findings, comparisons.cases, "the same greedy request is answered differently"
    )


def test_a_warm_prefix_changes_no_answer(
    *,
    questions: Questions,
    completion_client: CompletionClient,
    context_tokens: int,
    comparisons: AnswerComparisons,
    family: Family,
    server: Endpoint,
    checking: Checking,
    evidence: Evidence,
) -> None:
    length = min(PREFIX_CHARACTERS, context_tokens)
    prefix = (questions.filler * (length // len(questions.filler) + 1))[: length * 3 // 4]
    run = secrets.token_hex(4)
    first_body, second_body = (
        question(family, f"{prefix}\n\n{text}", questions.answer_tokens)
        for text in questions.questions[:2]
    )
    before = cached_tokens(server)
    cold = _answered(completion_client.ask({**first_body, "cache_salt": f"{run}-1"}))
    warmed = completion_client.ask({**second_body, "cache_salt": f"{run}-1"})
    again = completion_client.ask({**first_body, "cache_salt": f"{run}-1"})
    other_cold = _answered(completion_client.ask({**second_body, "cache_salt": f"{run}-2"}))
    evidence["cached_tokens"] = cached_tokens(server) - before
    comparisons.add("the same prompt again", cold, again)
    comparisons.add("another question after the same prefix", other_cold, warmed)
    checking(
        comparisons.findings,
        comparisons.cases,
        "an answer changes when the beginning of its prompt was computed for an earlier request",
    )


def test_company_changes_no_answer(
    *,
    questions: Questions,
    completion_client: CompletionClient,
    comparisons: AnswerComparisons,
    family: Family,
    checking: Checking,
    evidence: Evidence,
) -> None:
    bodies = [question(family, text, questions.answer_tokens) for text in questions.questions]
    alone = [_answered(completion_client.ask(body)) for body in bodies]
    evidence["different_answers"] = _different(alone)
    for text, expected, completion in zip(
        questions.questions, alone, completion_client.together(bodies), strict=True
    ):
        comparisons.add(text, expected, completion)
    if not comparisons.findings and evidence["different_answers"] == 1:
        raise Inconclusive(f"all questions get one answer, {alone[0].shown}: no mix-up would show")
    checking(
        comparisons.findings,
        comparisons.cases,
        f"among {len(bodies) - 1} concurrent requests an answer differs from the one alone",
    )


def test_no_answer_holds_what_is_anothers(
    *,
    questions: Questions,
    completion_client: CompletionClient,
    family: Family,
    checking: Checking,
    evidence: Evidence,
) -> None:
    # All prompts begin alike: a cache that compares only the beginning confuses them.
    beginning = questions.filler * BEGINNINGS
    control, *nonces = (secrets.token_hex(4) for _ in range(AT_ONCE + 1))
    for streamed in (False, True):
        completion = completion_client.ask(ticket(family, "", control, streamed=streamed))
        if control not in completion.text:
            raise Inconclusive(
                f"structured_outputs.choice leaves only 'ticket {control}', and alone the server "
                f"{'streams' if streamed else 'says'} {completion.shown}: no nonce can be followed"
            )
    bodies = [
        ticket(family, beginning, nonce, streamed=bool(number % 2))
        for number, nonce in enumerate(nonces)
    ]
    cases: list[Case] = []
    unanswered: list[Finding] = []
    mixed: list[Finding] = []
    not_followed: dict[str, str] = {}
    answers = completion_client.together(bodies)
    for number, completion in enumerate(answers):
        name = f"request {number + 1}, {'streamed' if number % 2 else 'whole'}"
        case = Case(name, {"case": "streamed" if number % 2 else "whole"}, completion.request)
        cases.append(case)
        faults = ticket_faults(completion, nonces, number)
        if faults and not completion.error and not holds_anothers(completion, nonces, number):
            # With another beginning and salt, it uses nothing that other requests left in a cache.
            salt = secrets.token_hex(4)
            apart = ticket(family, f"{salt} {beginning}", nonces[number], streamed=bool(number % 2))
            alone = completion_client.ask({**apart, "cache_salt": salt})
            if not alone.error and nonces[number] not in alone.text:
                not_followed[name] = alone.shown
                continue
        findings = unanswered if completion.error else mixed
        findings += [Finding(case, fault_text) for fault_text in faults]
    evidence["not_followed_alone"] = not_followed
    people = f"of {AT_ONCE} clients with concurrent requests"
    if len(not_followed) > AT_ONCE // 2 and not mixed and not unanswered:
        raise Inconclusive(
            f"{len(not_followed)} of {AT_ONCE} nonces are not followed by the same requests alone "
            f"either, the first with {next(iter(not_followed.values()))}: too few are left"
        )
    if unanswered and not mixed:
        checking(unanswered, cases, f"{people} one gets no answer")
    checking([*mixed, *unanswered], cases, f"{people} one gets another's text")


def test_clients_that_leave_free_their_slots(
    *,
    completion_client: CompletionClient,
    server: Endpoint,
    launch: Launch,
    context_tokens: int,
    family: Family,
    questions: Questions,
    checking: Checking,
    evidence: Evidence,
) -> None:
    cases, findings, undecided = [], [], []
    body = question(family, questions.questions[0], 1)
    for name, streamed in (("streamed", True), ("whole", False)):
        with Metrics(server) as metrics:
            result = disconnect(server, metrics, body, context_tokens, streamed=streamed)
        evidence[name] = result.as_evidence()
        if why := why_undecided(result, alone=launch.owned):
            undecided.append(f"{name}: {why}")
            continue
        case = Case(name, {"case": name}, {**body, "stream": streamed, "ignore_eos": True})
        cases.append(case)
        if sentence := fault(result):
            findings.append(Finding(case, sentence))
        if error := completion_client.ask(body).error:
            findings.append(Finding(case, f"the next request is not answered: {error}"))
    if not findings and undecided:
        raise Inconclusive("; ".join(undecided))
    checking(
        findings,
        cases,
        "requests of disconnected clients run on, and block waiting requests",
    )


def _answered(completion: Completion) -> Completion:
    assert not completion.error, f"no answer even alone: {completion.error}"
    return completion


def _different(answers: Iterable[Completion]) -> int:
    return len({answer.text for answer in answers})
