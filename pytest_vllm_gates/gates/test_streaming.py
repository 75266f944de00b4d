"""A streamed answer equals the whole answer, field by field, and arrives while it is generated.

Catches parsers that lose or misplace text in one of the two modes, frames that a strict client
refuses, servers and proxies that delay a stream, and slots that a disconnected client occupies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.conversations.checks import (
    choices,
    chunks,
    envelope,
    events,
    modes,
    pace,
    stream_pieces,
)
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.conversations.choices import ChoicesAnswer
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
    checking(findings, cases, "A request that this family supports is refused or fails")


def test_streamed_answer_equals_the_whole(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    pairs = [(exchange, exchange.whole, exchange.streamed) for exchange in walked.answered]
    compared = modes.compare(pairs, ("whole", "streamed"))
    evidence["generated_differently"] = compared.apart
    evidence["streams"] = stream_pieces.first_faulty_stream(compared.findings, walked.answered)
    impact = "A client that streams gets another answer than one that does not"
    checking(compared.findings, compared.cases, impact)


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
            "this server ignores stream_interval: every delta has one token. Set stream_interval "
            "in the lane's [serve]"
        )
    pairs = [(exchange, exchange.whole, exchange.widened) for exchange in walked.answered]
    compared = modes.compare(pairs, WIDE)
    evidence["generated_differently"] = compared.apart
    impact = (
        "With several tokens a delta (stream_interval, speculative decoding) a stream loses text"
    )
    checking(compared.findings, compared.cases, impact)


def test_stream_is_framed_as_clients_expect(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    cases = [exchange.case for exchange in walked.answered]
    findings = [
        Finding(exchange.case, sentence)
        for exchange in walked.answered
        for sentence in frame_faults(exchange)
    ]
    evidence["streams"] = stream_pieces.first_faulty_stream(findings, walked.answered)
    checking(findings, cases, "A strict client refuses the stream, or waits for its end for ever")


def test_fields_are_of_their_types(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    from pytest_vllm_gates.conversations import client_types  # noqa: PLC0415

    findings = [
        Finding(exchange.case, sentence)
        for exchange in walked.answered
        for sentence in (
            *client_types.body_faults(exchange.body),
            *client_types.chunk_faults(events.chunks(exchange.stream)),
        )
    ]
    evidence["chunks"] = sum(len(events.chunks(one.stream)) for one in walked.answered)
    checking(findings, walked.cases, "A typed client refuses the answer")


def test_ids_times_and_usage_are_plausible(walked: WalkResult, checking: Checking) -> None:
    found = envelope.findings(walked.answered)
    checking(found, walked.cases, "Logs, bills and caches that use these values are wrong")


def test_official_client_reads_the_same_answer(walked: WalkResult, checking: Checking) -> None:
    from pytest_vllm_gates.conversations import client_types  # noqa: PLC0415

    judged = [one for one in walked.answered if one.streamed and one.stream.pieces]
    findings = [
        Finding(exchange.case, sentence)
        for exchange in judged
        if exchange.streamed
        for sentence in client_types.assembly_faults(
            events.chunks(exchange.stream), exchange.streamed
        )
    ]
    cases = [exchange.case for exchange in judged]
    checking(
        findings, cases, "openai's own helper for streams assembles another answer from the chunks"
    )


def test_choices_are_kept_apart(
    choices_answers: list[ChoicesAnswer], checking: Checking, evidence: Evidence
) -> None:
    evidence["requests"] = sum(answer.requests for answer in choices_answers)
    evidence["texts"] = {
        answer.name: [choice.content for choice in answer.streamed] for answer in choices_answers
    }
    cases, findings = [], []
    for answer in choices_answers:
        case = Case(answer.name, {"choices": str(len(answer.whole))}, answer.request)
        cases.append(case)
        count = answer.request.get("n", 1)
        sentences = [
            *(f"whole: {sentence}" for sentence in choices.miscounted(answer.whole, count)),
            *chunks.faults(answer.chunks, count),
        ]
        if answer.texts:
            sentences += choices.mixed(answer.whole, answer.texts)
            sentences += choices.mixed(answer.streamed, answer.texts)
        sentences += choices.swapped(answer.whole, answer.streamed)
        findings += [Finding(case, sentence) for sentence in sentences]
    checking(findings, cases, "A client that requests several answers gets them mixed up")


def test_log_probabilities_are_those_of_the_text(
    choices_answers: list[ChoicesAnswer], checking: Checking, evidence: Evidence
) -> None:
    scored = {answer.name: [len(one.scores) for one in answer.whole] for answer in choices_answers}
    evidence["scored"] = scored
    cases, findings = [], []
    for answer in choices_answers:
        for mode, its_choices in (("whole", answer.whole), ("streamed", answer.streamed)):
            case = Case(
                f"{answer.name}, {mode}",
                {"answer": mode, "choices": str(len(answer.whole))},
                answer.request,
            )
            cases.append(case)
            findings += [
                Finding(case, sentence)
                for choice in its_choices
                for sentence in (
                    *choices.unaligned(choice),
                    *choices.implausible(
                        choice,
                        greedy=not answer.request.get("n"),
                        alternatives=answer.request["top_logprobs"],
                    ),
                )
            ]
        findings += [
            Finding(case, sentence)
            for whole, streamed in zip(answer.whole, answer.streamed, strict=False)
            for sentence in choices.scored_otherwise(whole, streamed)
        ]
    checking(
        findings, cases, "A client gets the probabilities of other words than those of the text"
    )


def test_usage_comes_only_where_it_is_asked(
    trivial: Conversation, family: Family, server: Endpoint, checking: Checking
) -> None:
    request = {**trivial.body(family), "max_tokens": FEW_TOKENS, "stream": True}
    case = Case("no stream_options", request=request)
    stream = http.recorded(server, request)
    findings = [Finding(case, fault) for fault in chunks.unrequested_usage(events.chunks(stream))]
    checking(findings, [case], "A client that did not request usage gets a chunk without choices")


def test_chunks_arrive_as_they_are_made(
    paced_answer: PacedStreams, checking: Checking, evidence: Evidence
) -> None:
    case, findings = pace_findings(paced_answer, "a long answer", checking, evidence)
    checking(findings, [case], "The answer does not appear word by word: it is late, or stops")


def test_arguments_arrive_as_they_are_made(
    paced_call: PacedStreams, checking: Checking, evidence: Evidence
) -> None:
    case, findings = pace_findings(paced_call, "a call with a long argument", checking, evidence)
    checking(findings, [case], "A call's arguments come late, in one burst")


def frame_faults(exchange: Exchange) -> Iterator[str]:
    """Yield the faults in the bytes of a stream, then in its chunks."""
    if exchange.stream.pieces:
        yield from events.faults(exchange.stream)
        yield from chunks.faults(events.chunks(exchange.stream))


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
