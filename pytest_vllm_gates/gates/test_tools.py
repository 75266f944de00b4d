"""Tool calls arrive whole: declared names, valid arguments, ids, and the requested choice.

Catches parsers that drop or cut calls, markup inside arguments, calls that no client can answer,
and a finish reason that promises a missing call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.conversations.checks import agreement, shared_ids, tokens, tool_calls
from pytest_vllm_gates.conversations.checks.tool_calls import altered_arguments
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.conversations.chosen_tools import ChosenTool
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
        Finding(exchange.case, fault)
        for exchange in with_tools
        for fault in agreement.faults_in_every_mode(exchange, tool_calls.finish)
    ]
    cases = [exchange.case for exchange in with_tools]
    checking(findings, cases, "An agent waits for a call that never comes, or overlooks one")


def test_calls_are_declared_and_valid(with_tools: list[Exchange], checking: Checking) -> None:
    findings = [
        Finding(exchange.case, fault)
        for exchange in with_tools
        for fault in agreement.faults_in_every_mode(
            exchange, lambda variant: tool_calls.valid(variant.whole, variant.request)
        )
    ]
    cases = [exchange.case for exchange in with_tools]
    checking(findings, cases, "A tool is called with invalid arguments")


def test_calls_have_ids(with_tools: list[Exchange], checking: Checking) -> None:
    findings = [
        Finding(exchange.case, fault)
        for exchange in with_tools
        for answer in (exchange.whole, exchange.streamed)
        if answer
        for fault in tool_calls.identified(answer)
    ]
    findings += shared_ids.of_calls(
        (answer, exchange.case)
        for exchange in with_tools
        for answer in (exchange.whole, exchange.streamed)
        if answer
    )
    checking(
        findings, [exchange.case for exchange in with_tools], "A tool's result cannot be sent back"
    )


def test_tool_choice_is_kept(walked: WalkResult, checking: Checking) -> None:
    findings = [
        Finding(exchange.case, fault)
        for exchange in walked.answered
        for fault in agreement.faults_in_every_mode(exchange, tool_calls.chosen)
    ]
    checking(findings, walked.cases, "The server does not follow tool_choice")


def test_strict_tools_keep_to_their_schema(
    chosen_tools: list[ChosenTool], checking: Checking, evidence: Evidence
) -> None:
    evidence["requests"] = len(chosen_tools)
    judged = [chosen for chosen in chosen_tools if chosen.strict]
    evidence["tokens"] = {chosen.name: chosen.raw[:120] for chosen in judged}
    cases = [Case(chosen.name, chosen.traits, chosen.request) for chosen in judged]
    findings = [
        Finding(case, sentence)
        for case, chosen in zip(cases, judged, strict=True)
        for sentence in tool_calls.out_of_schema(chosen.answer, chosen.request, chosen.raw)
    ]
    checking(findings, cases, "A strict tool is called with invalid arguments")


def test_named_tool_is_called(chosen_tools: list[ChosenTool], checking: Checking) -> None:
    judged = [chosen for chosen in chosen_tools if not chosen.strict]
    cases = [Case(chosen.name, chosen.traits, chosen.request) for chosen in judged]
    findings = [
        Finding(case, sentence)
        for case, chosen in zip(cases, judged, strict=True)
        for sentence in tool_calls.other_than_named(chosen.answer, chosen.request)
    ]
    checking(findings, cases, "The model calls the tool that it prefers, not the named one")


def test_parallel_calls_can_be_switched_off(
    chat: Chat, parallel_request: dict[str, Any], checking: Checking, evidence: Evidence
) -> None:
    evidence["calls"] = count = len(chat.ask(parallel_request).tool_calls)
    if count <= 1:
        raise NotApplicable("the model calls one tool at a time here")
    body = {**parallel_request, "parallel_tool_calls": False}
    cases = {mode: Case(mode, {"answer": mode}, body) for mode in ("whole", "streamed")}
    findings = [
        Finding(cases[mode], sentence)
        for mode, ask in (("whole", chat.ask), ("streamed", chat.stream))
        for sentence in tool_calls.one_at_a_time(ask(body), body)
    ]
    impact = "An agent that carries out one call at a time gets several"
    checking(findings, list(cases.values()), impact)


def test_no_call_is_lost(
    with_tools: list[Exchange], family: Family, checking: Checking, parser_hint: str
) -> None:
    exchanges = [exchange for exchange in with_tools if exchange.raw is not None]
    findings = [
        Finding(exchange.case, fault)
        for exchange in exchanges
        for fault in tokens.calls(exchange, family)
    ]
    impact = "The model called a tool, and the call or a part of its arguments is missing"
    checking(findings, [exchange.case for exchange in exchanges], impact, parser_hint)


def test_hostile_arguments_arrive_as_written(
    hostile_replies: ForcedReplies, checking: Checking, evidence: Evidence, parser_hint: str
) -> None:
    findings, cases = forced_call_findings(hostile_replies, "text", evidence)
    checking(
        findings, cases, "A tool gets other arguments than the model wrote, or none", parser_hint
    )


def test_arguments_keep_their_types(
    typed_replies: ForcedReplies, checking: Checking, evidence: Evidence, parser_hint: str
) -> None:
    findings, cases = forced_call_findings(typed_replies, "call", evidence)
    checking(findings, cases, "A tool gets arguments of other types than it declares", parser_hint)


def test_sampled_calls_are_as_often_valid_as_recorded(
    sampled_calls: SampledCalls, golden: Goldens, evidence: Evidence
) -> None:
    evidence.update(
        valid=sampled_calls.valid, of=sampled_calls.of, invalid=sampled_calls.invalid[:3]
    )
    recorded = golden.recorded("valid-calls")
    evidence["recorded"] = recorded
    if recorded is None or golden.recording:
        golden.check("valid-calls", tool_calls.golden_text(sampled_calls.valid, sampled_calls.of))
        return
    before = tool_calls.parse_golden(recorded)
    chance = tool_calls.chance_of_fewer(sampled_calls.valid, sampled_calls.of, *before)
    evidence["chance"] = round(chance, 6)
    assert chance >= tool_calls.LEAST_CHANCE, (
        f"{sampled_calls.valid} of {sampled_calls.of} sampled answers were valid calls, "
        f"{before[0]} of {before[1]} when it was recorded; "
        f"the chance of that is {chance:.2%}. "
        f"The first invalid one: {sampled_calls.invalid[0]}"
    )


def forced_call_findings(
    forced: ForcedReplies, trait: str, evidence: Evidence
) -> tuple[list[Finding], list[Case]]:
    """Return the findings for the calls that were forced, and all of them as cases."""
    evidence["replies"] = len(forced.replies)
    evidence["not_written"] = forced.not_written
    cases = [Case(reply.name, {trait: reply.name}, reply.request) for reply in forced.replies]
    findings = [
        Finding(case, sentence)
        for case, reply in zip(cases, forced.replies, strict=True)
        for sentence in altered_arguments(reply)
    ]
    failed = [Case(name, {trait: name}) for name in forced.failed]
    findings += [
        Finding(case, f"the server fails where a grammar leaves it this call alone: {error}")
        for case, error in zip(failed, forced.failed.values(), strict=True)
    ]
    return findings, [*cases, *failed]
