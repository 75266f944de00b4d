"""Tool calls arrive whole: declared names, valid arguments, ids, and the choice that was made.

Catches parsers that drop or cut calls, markup inside arguments, calls that no client can answer,
and a finish reason that promises a call which never comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.facts.finding import Case, Finding
from pytest_vllm_gates.facts.outcome import NotApplicable
from pytest_vllm_gates.judge import calls, rates, ways, wire
from pytest_vllm_gates.judge.hostile import judge_reply

if TYPE_CHECKING:
    from pytest_vllm_gates.drive.forced import Forced
    from pytest_vllm_gates.drive.sampled import Sampled
    from pytest_vllm_gates.facts.exchange import Exchange
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.fixtures.conversations import Walked
    from pytest_vllm_gates.fixtures.goldens import Goldens
    from pytest_vllm_gates.run.evidence import Evidence

pytestmark = pytest.mark.tools


@pytest.fixture
def with_tools(walked: Walked, family: Family) -> list[Exchange]:
    """The answers to requests that declare tools."""
    if family.tools is None:
        raise NotApplicable(f"{family.name} calls no tools")
    return [one for one in walked.answered if one.cell.tools != "undeclared"]


def test_calls_and_finish_reason_agree(with_tools: list[Exchange], checking: Checking) -> None:
    found = [Finding(one.case, each) for one in with_tools for each in ways.told(one, calls.finish)]
    cases = [one.case for one in with_tools]
    checking(found, cases, "An agent waits for a call that never comes, or overlooks one")


def test_calls_are_declared_and_valid(with_tools: list[Exchange], checking: Checking) -> None:
    found = [
        Finding(one.case, each)
        for one in with_tools
        for each in ways.told(one, lambda way: calls.valid(way.whole, way.request))
    ]
    cases = [one.case for one in with_tools]
    checking(found, cases, "A tool is called with what it cannot take")


def test_calls_have_ids(with_tools: list[Exchange], checking: Checking) -> None:
    found = [
        Finding(one.case, each)
        for one in with_tools
        for answer in (one.whole, one.streamed)
        if answer
        for each in calls.identified(answer)
    ]
    checking(found, [one.case for one in with_tools], "A tool's result cannot be sent back")


def test_tool_choice_is_kept(walked: Walked, checking: Checking) -> None:
    found = [
        Finding(one.case, each) for one in walked.answered for each in ways.told(one, calls.chosen)
    ]
    checking(found, walked.cases, "The server does not do what tool_choice says")


def test_no_call_is_lost(
    with_tools: list[Exchange], family: Family, checking: Checking, read_by: str
) -> None:
    told = [one for one in with_tools if one.raw is not None]
    found = [Finding(one.case, each) for one in told for each in wire.calls(one, family)]
    sees = "The model called a tool, and the call or a part of its arguments is missing"
    checking(found, [one.case for one in told], sees, read_by)


def test_hostile_arguments_arrive_as_written(
    forced: Forced, checking: Checking, evidence: Evidence, read_by: str
) -> None:
    evidence["replies"] = len(forced.replies)
    evidence["not_written"] = forced.not_written
    cases = [Case(one.name, one.traits, one.request) for one in forced.replies]
    found = [
        Finding(case, sentence)
        for case, reply in zip(cases, forced.replies, strict=True)
        for sentence in judge_reply(reply)
    ]
    failed = [Case(name, {"text": name}) for name in forced.failed]
    found += [
        Finding(case, f"the server fails where a grammar leaves it this call alone: {what}")
        for case, what in zip(failed, forced.failed.values(), strict=True)
    ]
    sees = "A tool gets other arguments than the model wrote, or none"
    checking(found, [*cases, *failed], sees, read_by)


def test_sampled_calls_are_as_often_valid_as_recorded(
    sampled: Sampled, golden: Goldens, evidence: Evidence
) -> None:
    evidence.update(valid=sampled.valid, of=sampled.of, invalid=sampled.invalid[:3])
    recorded = golden.recorded("valid-calls")
    evidence["recorded"] = recorded
    if recorded is None or golden.recording:
        golden.check("valid-calls", rates.laid_out(sampled.valid, sampled.of))
        return
    before = rates.read(recorded)
    chance = rates.chance_of_fewer(sampled.valid, sampled.of, *before)
    evidence["chance"] = round(chance, 6)
    assert chance >= rates.LEAST_CHANCE, (
        f"{sampled.valid} of {sampled.of} sampled answers were valid calls, {before[0]} of "
        f"{before[1]} when it was recorded; by chance alone that happens {chance:.2%} of the time. "
        f"First that was not: {sampled.invalid[0]}"
    )
