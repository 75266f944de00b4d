"""A run sends the planned requests; a server that breaks late ends it, and is located."""

from __future__ import annotations

import itertools
import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.catalog.conversation import load_all
from pytest_vllm_gates.client.questions import load as load_questions
from pytest_vllm_gates.endurance import checks, known, run
from pytest_vllm_gates.endurance.agents import NONCES, Agent
from pytest_vllm_gates.endurance.run import EnduranceTarget
from pytest_vllm_gates.endurance.types import (
    AGENT,
    CANARY,
    LEFT,
    LOST,
    THOUGHT,
    EnduranceResult,
    load,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.family import Family

QUESTIONS = load_questions()
ADAPTERS = ("french", "german")
MIXED_UP = 30
"""The ticket that is answered as the first one."""
PLAN = load().model_copy(update={"block_requests": 16})


class Model:
    """Answers as a grammar allows, and each question with its own text; breaks on demand."""

    def __init__(self, spoil: Callable[[int, str], str] = lambda _, text: text) -> None:
        self._spoil = spoil
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any]) -> Generation:
        with self._lock:
            number = next(self._numbers)
        choices = (body.get("structured_outputs") or {}).get("choice")
        asked = str(body["messages"][-1]["content"])
        return Generation(self._spoil(number, choices[0] if choices else f"about {asked}"))


def hold(
    model: Model,
    family: Family,
    requests: int | None,
    seconds: float | None = None,
    *,
    adapters: bool = False,
) -> EnduranceResult:
    with running(ScriptedModel(model)) as server:
        return EnduranceTarget(
            endpoint=server.endpoint, family=family, plan=PLAN, questions=QUESTIONS,
            canaries=known.asked(family, QUESTIONS, (), ADAPTERS if adapters else (), 64),
            adapters=ADAPTERS if adapters else (), metrics=None,
            concurrency=4, context=4096, answer_s=10.0, invariant=False, most_requests=requests,
            most_s=seconds, processes=lambda: [os.getpid()],
        ).hold()  # fmt: skip


def test_a_correct_server_gets_the_planned_requests(
    qwen: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOOK_S", 0.005)
    result = hold(Model(), qwen, 80)
    assert [each.number for each in result.requests] == [*range(1, 81)]
    assert len(result.of(CANARY)) == 10
    assert len(result.of(LEFT)) == 3
    assert len(result.of(AGENT)) == 67
    assert [each for each in result.requests if each.fault] == []
    assert result.ended_early == ""
    assert len(result.blocks) >= 3
    assert all(block.handles and block.memory_bytes for block in result.blocks)


def test_a_time_ends_it(qwen: Family) -> None:
    result = hold(Model(), qwen, None, 1.0)
    assert result.requests
    assert 1.0 <= result.took_s < 10.0


def test_late_wrong_answers_end_the_run_and_are_located(qwen: Family) -> None:
    first = len(known.asked(qwen, QUESTIONS, (), (), 64))

    # By then four clients have left and come back: 108 of the run have been sent.
    def spoil(number: int, text: str) -> str:
        return text if number <= first + 112 else text.replace("about", "abuot")

    result = hold(Model(spoil), qwen, 2000)
    assert "got an answer that differs from the first" in result.ended_early
    assert len(result.requests) < 200
    wrong, _ = checks.canaries(result, PLAN)
    assert wrong.startswith("since request 112, ")


def test_another_agents_answer_is_a_fault(qwen: Family) -> None:
    told: list[str] = []
    tickets = itertools.count(1)

    def spoil(_: int, text: str) -> str:
        if text.startswith("ticket"):
            told.append(text)
            return told[0] if next(tickets) == MIXED_UP else text
        return text

    result = hold(Model(spoil), qwen, 80)
    (fault,) = [each for each in result.requests if each.fault]
    assert fault.kind == AGENT
    assert "does not contain its own" in fault.fault


def test_a_server_that_is_gone_gets_no_more_requests(qwen: Family) -> None:
    def spoil(number: int, text: str) -> str:
        if number > 60:
            raise RuntimeError
        return text

    result = hold(Model(spoil), qwen, 5000)
    assert (
        "in a row had no answer" in result.ended_early
        or "differs from the first" in result.ended_early
    )
    assert len(result.requests) < 200


def test_a_server_that_does_not_answer_first_gets_no_more_requests(qwen: Family) -> None:
    def spoil(_: int, text: str) -> str:
        raise RuntimeError(text)

    result = hold(Model(spoil), qwen, 80)
    assert (result.requests, result.ended_early) == ((), "the first question is not answered")


def test_agents_use_the_model_and_its_adapters_by_turns(qwen: Family) -> None:
    asked: set[str] = set()

    class Seen(Model):
        def __call__(self, body: dict[str, Any]) -> Generation:
            if "structured_outputs" in body:
                asked.add(body["model"])
            return super().__call__(body)

    result = hold(Seen(), qwen, 80, adapters=True)
    assert [each for each in result.requests if each.fault] == []
    assert {*ADAPTERS} < asked
    assert len(asked) == 3


def test_half_of_the_agents_show_pictures_where_the_server_takes_them(qwen: Family) -> None:
    shown: list[bool] = []
    takes = True

    class Seeing(Model):
        def __call__(self, body: dict[str, Any]) -> Generation:
            first = body["messages"][0]["content"]
            if isinstance(first, list) and not takes:
                raise RuntimeError(first)
            if "structured_outputs" in body:
                shown.append(isinstance(first, list))
            return super().__call__(body)

    hold(Seeing(), qwen, 80)
    assert {*shown} == {True, False}
    shown.clear()
    takes = False
    assert [each for each in hold(Seeing(), qwen, 80).requests if each.fault] == []
    assert {*shown} == {False}


def test_a_client_that_left_comes_back_with_the_same_request(qwen: Family) -> None:
    bodies: list[dict[str, Any]] = []

    class Kept(Model):
        def __call__(self, body: dict[str, Any]) -> Generation:
            bodies.append(body)
            return super().__call__(body)

    result = hold(Kept(), qwen, 80)
    begun = [body["messages"] for body in bodies if body.get("ignore_eos")]
    again = [body["messages"] for body in bodies if "structured_outputs" in body]
    assert len(begun) == len(result.of(LEFT)) == 3
    assert all(messages in again for messages in begun)


def test_every_kind_has_known_answers(qwen: Family) -> None:
    bodies = known.asked(qwen, QUESTIONS, load_all(Path("/nowhere")), ADAPTERS, 64)
    count = len(QUESTIONS.questions)
    assert len([name for name in bodies if name.startswith("question ")]) == 3 * count
    assert bodies["question 1, german"]["model"] == "german"
    assert {"conversation thinking-on", "conversation json", "conversation tool-one"} < {*bodies}
    assert any(name.startswith(known.PICTURE) for name in bodies)


def test_a_lost_canary_is_a_separate_fault(qwen: Family) -> None:
    texts = set(QUESTIONS.questions)
    asked: list[str] = []

    def spoil(_: int, text: str) -> str:
        if text.removeprefix("about ") in texts:
            asked.append(text)
            if len(asked) == len(texts) + 2:
                raise RuntimeError(text)
        return text

    result = hold(Model(spoil), qwen, 80)
    (lost,) = [each for each in result.requests if each.fault]
    assert lost.kind == LOST
    assert "no answer" in lost.fault
    assert checks.canaries(result, PLAN) == ("", "")
    findings, _ = checks.others(result)
    assert len(findings) == 1


class Thinking(Model):
    """Ends every third answer to a ticket in its thinking."""

    EVERY = 3

    def __init__(self, spoil: Callable[[int, str], str] = lambda _, text: text) -> None:
        super().__init__(spoil)
        self._tickets = itertools.count()

    def __call__(self, body: dict[str, Any]) -> Generation:
        answer = super().__call__(body)
        if answer.content.startswith("ticket") and next(self._tickets) % self.EVERY == 0:
            return Generation("", "The user wants a ticket")
        return answer


@pytest.fixture
def always(qwen: Family) -> Family:
    """A family that always thinks."""
    assert qwen.thinking
    return qwen.model_copy(update={"thinking": qwen.thinking.model_copy(update={"switch": None})})


def test_an_answer_that_ended_in_its_thinking_has_no_nonce(qwen: Family, always: Family) -> None:
    result = hold(Thinking(), always, 80)
    assert 10 < len(result.of(THOUGHT)) < len(result.of(AGENT))
    assert not [each.fault for each in result.requests if each.fault]
    findings, _ = checks.others(hold(Thinking(), qwen, 80))
    assert len(findings) > 10


def test_the_other_answers_of_a_family_that_always_thinks_are_judged(always: Family) -> None:
    def spoil(_: int, text: str) -> str:
        return "ticket of another" if text.startswith("ticket") else text

    result = hold(Thinking(spoil), always, 80)
    assert len(result.of(AGENT)) > 10
    assert all(each.fault for each in (*result.of(AGENT), *result.of(LEFT)))
    assert not any(each.fault for each in result.of(THOUGHT))


class Refusing(Thinking):
    """Refuses long answers, and ends all others in their thinking."""

    EVERY = 1

    def __call__(self, body: dict[str, Any]) -> Generation:
        return Generation(status=500) if body.get("ignore_eos") else super().__call__(body)


def test_a_refused_answer_is_a_fault_though_the_next_ended_in_its_thinking(always: Family) -> None:
    findings, _ = checks.others(hold(Refusing(), always, 80))
    assert [finding.says for finding in findings] == ["answered 500"] * 3


def test_an_agent_repeats_its_grammars(qwen: Family) -> None:
    agents = [Agent(qwen, "", "", 4, random.Random(seed)) for seed in (1, 2)]  # noqa: S311 - the same in every run
    nonces = [[agent.next()[1] for _ in range(3 * NONCES)] for agent in agents]
    first, second = (set(each) for each in nonces)
    assert len(first) == len(second) == NONCES
    assert not first & second
    assert all(len({*each[at : at + NONCES]}) == NONCES for each in nonces for at in (0, 5, 99))
