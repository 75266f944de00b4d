"""One conversation means the same in every API of the server, whole and streamed.

Catches an API that drops reasoning, a system message, a tool's result or a limit that another one
keeps; streams that the official clients refuse or assemble wrongly; different token counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.dialects import (
    batch,
    checks,
    identity,
    parts,
    pieces,
    refusals,
    token_routes,
)
from pytest_vllm_gates.dialects.stored import NotStored
from pytest_vllm_gates.dialects.types import STREAM
from pytest_vllm_gates.outcomes import Finding, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.dialects.stored import StoredResponses
    from pytest_vllm_gates.dialects.types import Dialogues
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.dialects


def test_every_dialect_answers(
    dialogues: Dialogues, checking: Checking, evidence: Evidence
) -> None:
    evidence["requests"] = dialogues.requests
    evidence["seconds"] = round(dialogues.seconds, 1)
    evidence["not_applicable"] = dict(dialogues.not_applicable)
    replies = [reply for dialogue in dialogues.dialogues for reply in dialogue.replies]
    findings = [
        Finding(reply.finding_case, f"answered {reply.status}: {reply.error}")
        for reply in replies
        if not reply.answered
    ]
    findings += identity.findings(dialogues)
    cases = [reply.finding_case for reply in replies]
    checking(findings, cases, "Another API refuses a conversation that the chat API accepts")


def test_bodies_have_the_official_types(dialogues: Dialogues, checking: Checking) -> None:
    from pytest_vllm_gates.dialects import strict  # noqa: PLC0415 - both clients' types

    findings = [
        Finding(reply.finding_case, sentence)
        for _, reply in dialogues.answered
        for sentence in (*strict.faults(reply), *parts.faults(reply))
    ]
    checking(findings, dialogues.cases, "A strict client refuses the server's answer")


def test_events_come_in_order(dialogues: Dialogues, checking: Checking) -> None:
    streams = [reply for _, reply in dialogues.answered if reply.mode == STREAM]
    findings = [
        Finding(reply.finding_case, sentence)
        for reply in streams
        for sentence in checks.event_faults(reply)
    ]
    findings += pieces.findings(dialogues)
    cases = [reply.finding_case for reply in streams]
    checking(findings, cases, "A client cannot follow the events of a stream")


def test_official_clients_read_everything(dialogues: Dialogues, checking: Checking) -> None:
    findings = [
        Finding(reply.finding_case, sentence)
        for _, reply in dialogues.answered
        if (sentence := checks.unread(reply))
    ]
    checking(findings, dialogues.cases, "The official client of the API fails on the answer")


def test_a_stream_is_its_whole_answer(dialogues: Dialogues, checking: Checking) -> None:
    findings = list(checks.stream_findings(dialogues))
    cases = [reply.finding_case for _, reply in dialogues.answered if reply.mode == STREAM]
    checking(findings, cases, "A client that streams gets another answer than one that does not")


def test_dialects_mean_the_same(
    dialogues: Dialogues, checking: Checking, evidence: Evidence
) -> None:
    findings = list(checks.meaning_findings(dialogues))
    evidence["near_ties"] = [each.name for each in dialogues.dialogues if each.near_tie]
    checking(findings, dialogues.cases, "The same conversation gets another answer in another API")


def test_a_limit_is_told(dialogues: Dialogues, checking: Checking) -> None:
    findings = list(checks.limit_findings(dialogues))
    cases = [reply.finding_case for dialogue, reply in dialogues.answered if dialogue.limit]
    checking(findings, cases, "A client mistakes an answer that was cut for a whole one")


def test_dialects_count_the_same_tokens(dialogues: Dialogues, checking: Checking) -> None:
    findings = list(checks.token_findings(dialogues))
    routes = [
        checks.count_case(dialogue, path)
        for dialogue in dialogues.dialogues
        for path in dialogue.counts
    ]
    cases = [*dialogues.cases, *routes]
    checking(findings, cases, "The same conversation has another token count in another API")


def test_prompts_of_one_request_keep_apart(
    server: Endpoint, dialogues: Dialogues, checking: Checking, evidence: Evidence
) -> None:
    found = batch.ask(server, [dialogue.prompt_ids for dialogue in dialogues.dialogues])
    evidence["requests"] = 1 + len(found.alone)
    checking(
        list(batch.findings(found)), [found.case], "A batch job reads the answer to another prompt"
    )


def test_wrong_requests_are_refused_in_each_apis_form(
    server: Endpoint, dialogues: Dialogues, checking: Checking, evidence: Evidence
) -> None:
    refused = refusals.ask(server, dialogues)
    evidence["requests"] = len(refused)
    checking(
        list(refusals.findings(refused)),
        [refusal.case for refusal in refused],
        "An error does not explain what is wrong with the request",
    )


def test_texts_come_back_from_their_tokens(
    server: Endpoint, checking: Checking, evidence: Evidence
) -> None:
    trips = token_routes.ask(server)
    evidence["requests"] = 1 + 3 * len(trips)
    checking(
        list(token_routes.findings(trips)),
        [trip.case for trip in trips],
        "A client that counts or reads tokens gets those of another text",
    )


def test_stored_responses_go_on(
    dialogues: Dialogues, stored: StoredResponses, checking: Checking, evidence: Evidence
) -> None:
    chats = {each.name: each.chat_request for each in dialogues.dialogues}
    try:
        for name in ("plain", "tool-one"):
            if name in chats:
                stored.continue_(stored.retrieve(chats[name]))
    except NotStored as reason:
        raise NotApplicable(f"the server stores no responses: {reason}") from reason
    finally:
        evidence["requests"] = stored.requests
    stored.cancel(chats["plain"])
    evidence["requests"] = stored.requests
    checking(stored.findings, stored.cases, "An agent that continues by an id loses its history")
