"""Tool calls arrive whole: declared names, valid arguments, ids, and the choice that was made.

Catches parsers that drop or cut calls, markup inside arguments, calls that no client can answer,
and a finish reason that promises a call which never comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.conversations.checks import agreement, tokens, tool_calls
from pytest_vllm_gates.conversations.checks.tool_calls import altered
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.conversations.forced_calls import ForcedReplies
    from pytest_vllm_gates.conversations.sampled import SampledCalls
    from pytest_vllm_gates.conversations.walk import WalkResult
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.tools


@pytest.fixture
def with_tools(walked: WalkResult, family: Family) -> list[Exchange]:
    """The answers to requests that declare tools."""
    if family.tools is None:
        raise NotApplicable(f"{family.name} calls no tools")
    return [exchange for exchange in walked.answered if exchange.cell.tools != "undeclared"]


def test_calls_and_finish_reason_agree(with_tools: list[Exchange], checking: Checking) -> None:
    findings = [
        Finding(tool.case, each)
        for tool in with_tools
        for each in agreement.told(tool, tool_calls.finish)
    ]
    cases = [tool.case for tool in with_tools]
    checking(findings, cases, "An agent waits for a call that never comes, or overlooks one")


def test_calls_are_declared_and_valid(with_tools: list[Exchange], checking: Checking) -> None:
    findings = [
        Finding(tool.case, each)
        for tool in with_tools
        for each in agreement.told(tool, lambda way: tool_calls.valid(way.whole, way.request))
    ]
    cases = [tool.case for tool in with_tools]
    checking(findings, cases, "A tool is called with what it cannot take")


def test_calls_have_ids(with_tools: list[Exchange], checking: Checking) -> None:
    findings = [
        Finding(tool.case, each)
        for tool in with_tools
        for answer in (tool.whole, tool.streamed)
        if answer
        for each in tool_calls.identified(answer)
    ]
    checking(findings, [tool.case for tool in with_tools], "A tool's result cannot be sent back")


def test_tool_choice_is_kept(walked: WalkResult, checking: Checking) -> None:
    findings = [
        Finding(exchange.case, each)
        for exchange in walked.answered
        for each in agreement.told(exchange, tool_calls.chosen)
    ]
    checking(findings, walked.cases, "The server does not do what tool_choice says")


def test_parallel_calls_can_be_switched_off(
    chat: Chat, parallel: dict[str, Any], checking: Checking, evidence: Evidence
) -> None:
    evidence["calls"] = count = len(chat.ask(parallel).tool_calls)
    if count <= 1:
        raise NotApplicable("the model calls one tool at a time here")
    body = {**parallel, "parallel_tool_calls": False}
    cases = {way: Case(way, {"answer": way}, body) for way in ("whole", "streamed")}
    findings = [
        Finding(cases[way], sentence)
        for way, ask in (("whole", chat.ask), ("streamed", chat.stream))
        for sentence in tool_calls.one_at_a_time(ask(body), body)
    ]
    sees = "An agent that carries out one call at a time is given several"
    checking(findings, list(cases.values()), sees)


def test_no_call_is_lost(
    with_tools: list[Exchange], family: Family, checking: Checking, read_by: str
) -> None:
    exchanges = [tool for tool in with_tools if tool.raw is not None]
    findings = [
        Finding(exchange.case, each)
        for exchange in exchanges
        for each in tokens.calls(exchange, family)
    ]
    sees = "The model called a tool, and the call or a part of its arguments is missing"
    checking(findings, [exchange.case for exchange in exchanges], sees, read_by)


def test_hostile_arguments_arrive_as_written(
    hostile: ForcedReplies, checking: Checking, evidence: Evidence, read_by: str
) -> None:
    findings, cases = judged(hostile, "text", evidence)
    checking(findings, cases, "A tool gets other arguments than the model wrote, or none", read_by)


def test_arguments_keep_their_types(
    typed: ForcedReplies, checking: Checking, evidence: Evidence, read_by: str
) -> None:
    findings, cases = judged(typed, "call", evidence)
    checking(findings, cases, "A tool gets arguments of other types than it declares", read_by)


def test_sampled_calls_are_as_often_valid_as_recorded(
    sampled: SampledCalls, golden: Goldens, evidence: Evidence
) -> None:
    evidence.update(valid=sampled.valid, of=sampled.of, invalid=sampled.invalid[:3])
    recorded = golden.recorded("valid-calls")
    evidence["recorded"] = recorded
    if recorded is None or golden.recording:
        golden.check("valid-calls", tool_calls.laid_out(sampled.valid, sampled.of))
        return
    before = tool_calls.read(recorded)
    chance = tool_calls.chance_of_fewer(sampled.valid, sampled.of, *before)
    evidence["chance"] = round(chance, 6)
    assert chance >= tool_calls.LEAST_CHANCE, (
        f"{sampled.valid} of {sampled.of} sampled answers were valid calls, {before[0]} of "
        f"{before[1]} when it was recorded; by chance alone that happens {chance:.2%} of the time. "
        f"First that was not: {sampled.invalid[0]}"
    )


def judged(
    forced: ForcedReplies, trait: str, evidence: Evidence
) -> tuple[list[Finding], list[Case]]:
    """Return what is wrong with the calls that were forced, and all of them as cases."""
    evidence["replies"] = len(forced.replies)
    evidence["not_written"] = forced.not_written
    cases = [Case(reply.name, {trait: reply.name}, reply.request) for reply in forced.replies]
    findings = [
        Finding(case, sentence)
        for case, reply in zip(cases, forced.replies, strict=True)
        for sentence in altered(reply)
    ]
    failed = [Case(name, {trait: name}) for name in forced.failed]
    findings += [
        Finding(case, f"the server fails where a grammar leaves it this call alone: {what}")
        for case, what in zip(failed, forced.failed.values(), strict=True)
    ]
    return findings, [*cases, *failed]
