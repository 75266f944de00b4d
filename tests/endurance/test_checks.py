"""Wrong canaries are reported with the first one; growing figures are reported."""

from __future__ import annotations

import dataclasses
import random

import pytest

from pytest_vllm_gates.endurance import checks
from pytest_vllm_gates.endurance.types import (
    AGENT,
    CANARY,
    LEFT,
    THOUGHT,
    EnduranceBlock,
    EnduranceResult,
    EnduredRequest,
    load,
)

PLAN = load()
MIB = 2**20


def ran(*wrong: int, canaries: int = 100, every: int = 8) -> EnduranceResult:
    """Return a run whose canaries of these places, counted from 0, are wrong."""
    requests = tuple(
        EnduredRequest(every * (at + 1), CANARY, "'Paris' is 'Rome'" if at in wrong else "")
        for at in range(canaries)
    )
    return EnduranceResult(requests, (), 60.0)


def blocks(
    *, memory: float = 0.0, handles: float = 0.0, lost: float = 0.0, scatter: float = 0.01
) -> EnduranceResult:
    """Return a run that grows and sinks by so much from end to end."""
    chance = random.Random(1)  # noqa: S311 - the same in every run
    made = []
    for number in range(20):
        part = number / 19
        rate = 1000 * (1 - lost * part) * (1 + chance.gauss(0, scatter))
        made.append(
            EnduranceBlock(
                10.0 * number, 64 * number, round(rate * 10), 10.0,
                round(2**30 + memory * part), round(80 + handles * part),
            )
        )  # fmt: skip
    return EnduranceResult((), tuple(made), 200.0)


def test_correct_canaries_yield_no_finding() -> None:
    assert checks.canaries(ran(), PLAN) == ("", "")


def test_wrong_canaries_are_reported_from_the_first_one() -> None:
    wrong, doubt = checks.canaries(ran(*range(32, 100, 3)), PLAN)
    assert doubt == ""
    assert wrong.startswith(
        "since request 264, 23 of 68 questions got an answer that differs from the first; "
        "of 32 before, 0\n"
        "request 264: 'Paris' is 'Rome'"
    )
    assert wrong.count("\n") == checks.SHOWN


def test_one_of_many_is_not_sure() -> None:
    wrong, doubt = checks.canaries(ran(50), PLAN)
    assert wrong == ""
    assert "send more requests" in doubt


@pytest.mark.parametrize(
    ("wrong", "asked", "sure"),
    [(0, 4000, False), (1, 4000, False), (4, 4000, False), (3, 30, True), (5, 200, True)],
)
def test_odds_fall_with_the_wrong_answers(*, wrong: int, asked: int, sure: bool) -> None:
    assert (checks.odds_of_right(wrong, asked, PLAN.tolerated) <= PLAN.odds) is sure


def test_a_correct_server_is_hardly_ever_faulted_however_often_one_looks() -> None:
    alarms = 0
    for seed in range(2000):
        chance = random.Random(seed)  # noqa: S311 - the same in every run
        hits = 0
        for asked in range(1, 500):
            hit = chance.random() < PLAN.tolerated
            hits += hit
            if hit and checks.odds_of_right(hits, asked, PLAN.tolerated) <= 1e-2:
                alarms += 1
                break
    assert alarms <= 0.01 * 2000


@pytest.mark.parametrize("since", [0, 7, 60, 99])
def test_the_change_is_where_it_is(since: int) -> None:
    found = checks.change_point(ran(*range(since, 100)).requests, PLAN.tolerated)
    assert found == since


@pytest.mark.parametrize(
    ("wrong", "since"), [((29, 41, 42, 43), 29), ((0, 40, 41, 42, 43, 44), 40)]
)
def test_an_early_wrong_answer_is_a_part_of_the_change_unless_it_is_far_off(
    wrong: tuple[int, ...], since: int
) -> None:
    canaries = ran(*wrong, canaries=45).requests
    assert checks.change_point(canaries, PLAN.tolerated) == since


def test_agents_answers_are_findings() -> None:
    requests = (EnduredRequest(1, AGENT), EnduredRequest(2, AGENT, "no answer", {"a": 1}))
    findings, cases = checks.others(EnduranceResult(requests, (), 1.0))
    assert [case.name for case in cases] == ["request 1 (agent)", "request 2 (agent)"]
    assert [(finding.case.name, finding.says) for finding in findings] == [
        ("request 2 (agent)", "no answer")
    ]


@pytest.mark.parametrize(("thought", "undecided"), [(0, False), (3, False), (4, True)])
def test_answers_that_ended_in_their_thinking_are_not_judged(thought: int, undecided: bool) -> None:
    kinds = [AGENT, AGENT, LEFT, *([THOUGHT] * thought), CANARY]
    requests = tuple(EnduredRequest(number, kind) for number, kind in enumerate(kinds, 1))
    result = EnduranceResult(requests, (), 1.0)
    assert len(checks.others(result)[1]) == 3
    assert bool(checks.too_few_nonces(result)) is undecided


def test_a_steady_figure_is_not_reported() -> None:
    assert checks.growth(blocks(), PLAN) == ([], True)
    assert checks.sinking(blocks(), PLAN)[:2] == ("", "")


def test_a_growing_figure_is_reported() -> None:
    (memory,), _ = checks.growth(blocks(memory=900 * MIB), PLAN)
    assert "memory grows by" in memory
    (handles,), _ = checks.growth(blocks(handles=400), PLAN)
    assert "open files and sockets grow by" in handles


def test_a_sinking_rate_is_reported_and_a_scattered_one_is_undecided() -> None:
    wrong, _, _ = checks.sinking(blocks(lost=0.5), PLAN)
    assert "tokens a second are lost over the run" in wrong
    wrong, doubt, _ = checks.sinking(blocks(lost=0.15, scatter=0.4), PLAN)
    assert (wrong, "make the run longer" in doubt) == ("", True)


def test_a_short_run_has_no_drift() -> None:
    assert checks.growth(ran(), PLAN) == ([], False)
    assert checks.sinking(ran(), PLAN) == ("", "", None)


def test_a_right_answer_after_the_end_takes_no_verdict_back() -> None:
    asked = tuple(
        EnduredRequest(8 * at, CANARY, "x" if at in {28, 30, 33} else "") for at in range(1, 40)
    )
    assert checks.odds_of_right(3, len(asked), PLAN.tolerated) > PLAN.odds
    undecided = EnduranceResult(asked, (), 1.0)
    assert checks.canaries(undecided, PLAN)[0] == ""
    ended = dataclasses.replace(undecided, least_odds=PLAN.odds / 2)
    assert checks.canaries(ended, PLAN)[0].startswith("since request 224")
