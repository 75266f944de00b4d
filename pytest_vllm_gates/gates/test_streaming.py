"""A streamed answer says what the whole answer says, field by field, as it is made.

Catches parsers that lose or misplace text in one of the two modes, frames that a strict client
refuses, servers and proxies that hold a stream back, and slots that a gone client keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.conversations.checks import framing, pace
from pytest_vllm_gates.conversations.checks.agreement import differences, divergence
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer, Exchange
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.conversations.pace import PacedStreams
    from pytest_vllm_gates.conversations.walk import WalkResult
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.streaming

FEW_TOKENS = 8
WIDE = ("whole", "streamed in wide deltas")


def test_every_request_is_answered(
    matrix_walk: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    evidence["cells"] = len(matrix_walk.exchanges)
    evidence["requests"] = matrix_walk.requests
    evidence["seconds"] = round(matrix_walk.seconds, 1)
    evidence["not_applicable"] = matrix_walk.not_applicable
    findings = [
        Finding(exchange.case, exchange.error)
        for exchange in matrix_walk.exchanges
        if exchange.error
    ]
    cases = [exchange.case for exchange in matrix_walk.exchanges]
    checking(findings, cases, "A request that this family can have is refused or fails")


def test_streamed_answer_equals_the_whole(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    pairs = [(exchange, exchange.whole, exchange.streamed) for exchange in walked.answered]
    findings, cases = mode_findings(pairs, evidence, ("whole", "streamed"))
    evidence["streams"] = framing.first_faulty_stream(findings, walked.answered)
    impact = "A client that streams gets another answer than one that does not"
    checking(findings, cases, impact)


def test_deltas_of_several_tokens_lose_nothing(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    delta_tokens = [
        count
        for exchange in walked.answered
        if exchange.widened
        for count in exchange.widened.delta_tokens
    ]
    evidence["tokens_per_delta"] = {
        "most": max(delta_tokens, default=None),
        "deltas": len(delta_tokens),
    }
    if delta_tokens and max(delta_tokens) == 1:
        raise NotApplicable(
            "this server ignores stream_interval: every delta held one token. Set stream_interval "
            "in the lane's [serve]"
        )
    pairs = [(exchange, exchange.whole, exchange.widened) for exchange in walked.answered]
    findings, cases = mode_findings(pairs, evidence, WIDE)
    impact = (
        "With several tokens a delta (stream_interval, speculative decoding) a stream loses text"
    )
    checking(findings, cases, impact)


def test_stream_is_framed_as_clients_expect(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    cases = [exchange.case for exchange in walked.answered]
    findings = [
        Finding(exchange.case, sentence)
        for exchange in walked.answered
        for sentence in framing.faults(exchange.stream)
    ]
    evidence["streams"] = framing.first_faulty_stream(findings, walked.answered)
    checking(findings, cases, "A strict client refuses the stream, or waits for its end for ever")


def test_usage_comes_only_where_it_is_asked(
    trivial: Conversation, family: Family, server: Endpoint, checking: Checking
) -> None:
    request = {**trivial.body(family), "max_tokens": FEW_TOKENS, "stream": True}
    case = Case("no stream_options", request=request)
    stream = http.recorded(server, request)
    findings = [Finding(case, fault) for fault in framing.unrequested_usage(stream)]
    checking(findings, [case], "A client that did not ask for usage gets a chunk without choices")


def test_chunks_arrive_as_they_are_made(
    paced_answer: PacedStreams, checking: Checking, evidence: Evidence
) -> None:
    case, findings = pace_findings(paced_answer, "a long answer", checking, evidence)
    checking(findings, [case], "The answer does not appear word by word: it comes late, or stops")


def test_arguments_arrive_as_they_are_made(
    paced_call: PacedStreams, checking: Checking, evidence: Evidence
) -> None:
    case, findings = pace_findings(paced_call, "a call with a long argument", checking, evidence)
    checking(
        findings, [case], "A call's arguments come in one late burst, and nothing shows till then"
    )


def pace_findings(
    paced_answer: PacedStreams, name: str, checking: Checking, evidence: Evidence
) -> tuple[Case, list[Finding]]:
    """Return the findings on how a stream arrived.

    Raises `Inconclusive` if they are not known defects and may be the fault of a busy machine.
    """
    evidence["streams"] = [stream.as_evidence() for stream in paced_answer.streams]
    case = Case(f"{name}, streamed", request=paced_answer.request)
    findings = [Finding(case, fault) for fault in pace.faults(paced_answer.streams[-1])]
    if findings and pace.undecided(paced_answer.streams) and not checking.knows(findings, [case]):
        raise Inconclusive(
            f"{len(paced_answer.streams)} streams, and the server was too busy to answer: "
            f"{findings[0].says}"
        )
    return case, findings


def mode_findings(
    pairs: Sequence[tuple[Exchange, Answer | None, Answer | None]],
    evidence: Evidence,
    names: tuple[str, str],
) -> tuple[list[Finding], list[Case]]:
    """Compare answers pairwise; pairs of other tokens prove nothing and are only written down."""
    findings: list[Finding] = []
    cases: list[Case] = []
    apart: dict[str, int] = {}
    for exchange, first, second in pairs:
        if first is None or second is None:
            continue
        if (at := divergence(first, second)) is not None:
            apart[exchange.cell.name] = at
            continue
        cases.append(exchange.case)
        findings += [Finding(exchange.case, fault) for fault in differences(first, second, names)]
    evidence["generated_differently"] = apart
    return findings, cases
