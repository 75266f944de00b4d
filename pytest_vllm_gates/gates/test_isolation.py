"""An answer depends on its own request alone: not on who else asks, asked before or went away.

Catches answers mixed up between concurrent requests, caches that return what was computed for
another prompt, batches that change what is said, and slots that are never free again.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import questions as client_questions
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.http import context
from pytest_vllm_gates.client.questions import faults, load
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.isolation import cancel as drive, checks as judge
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
    from pytest_vllm_gates.session.boot import Launch
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.run import Run

pytestmark = pytest.mark.isolation

AGAIN = 3
AT_ONCE = 16
BEGINNINGS = 8
PREFIX_CHARACTERS = 12_000


@pytest.fixture
def questions() -> Questions:
    """What is asked."""
    return load()


@pytest.fixture
def saying(server: Endpoint) -> CompletionClient:
    """Ask for answers with their tokens."""
    return CompletionClient(server, ANSWER_LIMIT_S)


@pytest.fixture
def tokens(server: Endpoint, family: Family) -> int:
    """The context the server has, in tokens."""
    return context(server, family.context.planned)


class Sames:
    """Pairs of answers that should be the same, and what is found of them."""

    def __init__(self, evidence: Evidence, *, invariant: bool) -> None:
        self.findings: list[Finding] = []
        self.cases: list[Case] = []
        self._evidence = evidence
        self._invariant = invariant
        evidence["batch_invariant"] = invariant
        evidence["equivalent"] = []

    def add(self, name: str, alone: Completion, other: Completion) -> None:
        """Compare an answer with the one given alone."""
        case = Case(name, {"case": name}, other.request)
        self.cases.append(case)
        sameness = compare(alone, other, invariant=self._invariant)
        if sameness.fault:
            self.findings.append(Finding(case, sameness.fault))
        if sameness.parts_at is not None:
            entry = {
                "case": name,
                "parts_at": sameness.parts_at,
                "behind_nats": sameness.behind_nats,
            }
            self._evidence["equivalent"] = [*self._evidence["equivalent"], entry]


@pytest.fixture
def sames(evidence: Evidence, _run: Run) -> Sames:
    """Where answers are compared, as strictly as the lane lets."""
    return Sames(evidence, invariant=_run.lane.batch_invariant)


def test_same_question_gets_the_same_answer(
    questions: Questions, saying: CompletionClient, sames: Sames, family: Family, checking: Checking
) -> None:
    body = client_questions.question(family, questions.questions[0], questions.answer_tokens)
    first = _answered(saying.ask(body))
    for number in range(2, AGAIN + 1):
        sames.add(f"asked the {number}. time", first, saying.ask(body))
    checking(sames.findings, sames.cases, "the same greedy request is answered differently")


def test_a_warm_prefix_changes_no_answer(
    *,
    questions: Questions,
    saying: CompletionClient,
    tokens: int,
    sames: Sames,
    family: Family,
    server: Endpoint,
    checking: Checking,
    evidence: Evidence,
) -> None:
    length = min(PREFIX_CHARACTERS, tokens)
    prefix = (questions.filler * (length // len(questions.filler) + 1))[: length * 3 // 4]
    run = secrets.token_hex(4)
    entry, other = (
        client_questions.question(family, f"{prefix}\n\n{question}", questions.answer_tokens)
        for question in questions.questions[:2]
    )
    before = cached_tokens(server)
    cold = _answered(saying.ask({**entry, "cache_salt": f"{run}-1"}))
    warmed = saying.ask({**other, "cache_salt": f"{run}-1"})
    again = saying.ask({**entry, "cache_salt": f"{run}-1"})
    other_cold = _answered(saying.ask({**other, "cache_salt": f"{run}-2"}))
    evidence["cached_tokens"] = cached_tokens(server) - before
    sames.add("the same prompt again", cold, again)
    sames.add("another question after the same prefix", other_cold, warmed)
    checking(
        sames.findings,
        sames.cases,
        "an answer changes when the beginning of its prompt was computed for an earlier request",
    )


def test_company_changes_no_answer(
    *,
    questions: Questions,
    saying: CompletionClient,
    sames: Sames,
    family: Family,
    checking: Checking,
    evidence: Evidence,
) -> None:
    bodies = [
        client_questions.question(family, text, questions.answer_tokens)
        for text in questions.questions
    ]
    alone = [_answered(saying.ask(body)) for body in bodies]
    evidence["different_answers"] = _different(alone)
    for question, completion, other in zip(
        questions.questions, alone, saying.together(bodies), strict=True
    ):
        sames.add(question, completion, other)
    if not sames.findings and evidence["different_answers"] == 1:
        raise Inconclusive(f"everything is answered alike, {alone[0].shown}: nothing can be told")
    checking(
        sames.findings,
        sames.cases,
        f"what is asked among {len(bodies) - 1} others is answered otherwise than alone",
    )


def test_no_answer_holds_what_is_anothers(
    questions: Questions, saying: CompletionClient, family: Family, checking: Checking
) -> None:
    # All prompts begin alike: who looks only at the beginning takes one for another.
    beginning = questions.filler * BEGINNINGS
    control, *nonces = (secrets.token_hex(4) for _ in range(AT_ONCE + 1))
    for streamed in (False, True):
        completion = saying.ask(client_questions.ticket(family, "", control, streamed=streamed))
        if control not in completion.text:
            raise Inconclusive(
                f"structured_outputs.choice leaves only 'ticket {control}', and alone the server "
                f"{'streams' if streamed else 'says'} {completion.shown}: no nonce can be followed"
            )
    bodies = [
        client_questions.ticket(family, beginning, nonce, streamed=bool(number % 2))
        for number, nonce in enumerate(nonces)
    ]
    cases, findings = [], []
    answers = saying.together(bodies)
    for number, completion in enumerate(answers):
        name = f"request {number + 1}, {'streamed' if number % 2 else 'whole'}"
        case = Case(name, {"case": "streamed" if number % 2 else "whole"}, completion.request)
        cases.append(case)
        findings += [Finding(case, what) for what in faults(completion, nonces, number)]
    checking(
        findings,
        cases,
        f"of {AT_ONCE} people who ask at the same time somebody reads what is another's",
    )


def test_clients_that_leave_free_their_slots(
    *,
    saying: CompletionClient,
    server: Endpoint,
    launch: Launch,
    tokens: int,
    family: Family,
    questions: Questions,
    checking: Checking,
    evidence: Evidence,
) -> None:
    cases, findings, undecided = [], [], []
    body = client_questions.question(family, questions.questions[0], 1)
    for name, streamed in (("streamed", True), ("whole", False)):
        with Metrics(server) as metrics:
            left = drive.leave(server, metrics, body, tokens, streamed=streamed)
        evidence[name] = left.as_evidence()
        if why := judge.why_undecided(left, alone=launch.owned):
            undecided.append(f"{name}: {why}")
            continue
        case = Case(name, {"case": name}, {**body, "stream": streamed, "ignore_eos": True})
        cases.append(case)
        if what := judge.fault(left):
            findings.append(Finding(case, what))
        if error := saying.ask(body).error:
            findings.append(Finding(case, f"the next request is not answered: {error}"))
    if not findings and undecided:
        raise Inconclusive("; ".join(undecided))
    checking(
        findings,
        cases,
        "answers go on for clients that are gone, and keep the places of those who wait",
    )


def _answered(said: Completion) -> Completion:
    assert not said.error, f"no answer even alone: {said.error}"
    return said


def _different(answers: Iterable[Completion]) -> int:
    return len({answer.text for answer in answers})
