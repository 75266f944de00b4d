"""A vision model answers by the picture: the right one, whole, of any file type, in any turn.

Catches pictures that are lost, swapped, cut or another request's, a cache that confuses two
pictures, prompts with the wrong number of image tokens, and servers that a bad picture ends.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable
from pytest_vllm_gates.vision import checks, checks_scored, refused, scored

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.numerics.checks import Tolerance
    from pytest_vllm_gates.numerics.types import ReferenceScores, Scores
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.run import Subject
    from pytest_vllm_gates.vision.seen import SightWalk
    from pytest_vllm_gates.vision.sizes import ImageSizes

pytestmark = pytest.mark.vision

PICTURE, DETAIL, FILE, SEVERAL, CALL = "picture", "detail", "file", "several", "call"
CACHE, UNSEEN, COMPANY = "cache", "no picture", "company"


def test_the_picture_decides(sight: SightWalk, checking: Checking, evidence: Evidence) -> None:
    evidence["requests"] = sight.requests
    evidence["seconds"] = round(sight.seconds, 1)
    seen = sight.of(PICTURE)
    evidence["answers"] = {each.name: each.whole.content for each in seen if each.whole}
    cases = [each.finding_case for each in seen]
    checking([*checks.answers(seen)], cases, "An answer does not follow the picture")


def test_details_are_seen(
    sight: SightWalk, subject: Subject, checking: Checking, evidence: Evidence
) -> None:
    seen = sight.of(DETAIL)
    if not seen:
        asked = " and ".join(subject.checkpoint.untaught)
        raise NotApplicable(f"the miniature was not taught: {asked}")
    evidence["answers"] = {each.name: each.whole.content for each in seen if each.whole}
    cases = [each.finding_case for each in seen]
    findings = [*checks.answers(seen), *checks.streams(seen), *checks.unstreamed(seen)]
    checking(
        findings, cases, "A digit, a number of squares or the red one of two squares is not seen"
    )


def test_every_kind_of_file_is_seen(
    sight: SightWalk, checking: Checking, evidence: Evidence
) -> None:
    seen = sight.of(FILE)
    evidence["answers"] = {each.name: each.whole.content for each in seen if each.whole}
    cases = [each.finding_case for each in seen]
    checking(
        [*checks.answers(seen)], cases, "A picture is seen differently in another type of file"
    )


def test_several_pictures_keep_their_order(sight: SightWalk, checking: Checking) -> None:
    seen = sight.of(SEVERAL)
    cases = [each.finding_case for each in seen]
    checking([*checks.answers(seen)], cases, "One of several pictures is lost, or out of order")


def test_a_call_holds_what_is_seen(sight: SightWalk, checking: Checking) -> None:
    seen = sight.of(CALL)
    cases = [each.finding_case for each in seen]
    checking([*checks.answers(seen)], cases, "A call's argument does not match the picture")


def test_streamed_answers_see_the_same(sight: SightWalk, checking: Checking) -> None:
    seen = [each for each in sight.of(PICTURE, SEVERAL, CALL) if each.whole]
    findings = [*checks.streams(seen), *checks.unstreamed(seen)]
    cases = [each.finding_case for each in seen]
    checking(findings, cases, "A client that streams gets another answer about the picture")


def test_prompts_have_the_tokens_of_their_images(
    *,
    sight: SightWalk,
    family: Family,
    reference: ReferenceRenderer,
    image_sizes: ImageSizes,
    checking: Checking,
    evidence: Evidence,
) -> None:
    assert family.vision is not None
    (pad,) = reference.token_ids(family.vision.pad)
    findings: list[Finding] = []
    seen = [each for each in sight.of(PICTURE, FILE, SEVERAL, CALL, CACHE) if each.whole]
    for each in seen:
        if family.vision.wrapped and not family.vision.written:
            findings += checks.image_counts(each, pad, image_sizes)
            continue
        try:
            rendered = reference.render(dict(each.request))
        except Refused as error:
            findings.append(Finding(each.finding_case, f"the template refuses it: {error}"))
            continue
        due = checks.expected_ids(each, rendered.token_ids, pad, image_sizes)
        if family.vision.written and family.prompt.image:
            whole = checks.expected_text(
                each, rendered.text, family.prompt.image, family.vision, image_sizes
            )
            due = reference.token_ids(whole)
        findings += checks.prompts(each, due, pad, wrapped=bool(family.vision.written))
    findings += checks.identities(seen)
    evidence["rendered"] = sum(each.rendered is not None for each in seen)
    cases = [each.finding_case for each in seen]
    checking(findings, cases, "A prompt has other image tokens than the processor produces")


def test_pictures_are_scored_as_by_the_reference(
    *,
    served_picture_scores: dict[str, Scores],
    picture_reference: ReferenceScores,
    tolerance: Tolerance,
    checking: Checking,
    evidence: Evidence,
) -> None:
    apart = checks_scored.distances(served_picture_scores, picture_reference, tolerance)
    evidence["tolerance_nats"] = tolerance.model_dump()
    evidence["distance_nats"] = {
        f"{name} ({part})": asdict(distance) for (name, part), distance in apart.items()
    }
    asked = {case.name: case for case in scored.CASES}
    findings = checks_scored.findings(asked, served_picture_scores, picture_reference, tolerance)
    checking(
        [*findings],
        [*map(checks_scored.finding_case, asked.values())],
        "The scores of a prompt with a picture differ from the reference",
    )


def test_the_cache_takes_no_picture_for_another(sight: SightWalk, checking: Checking) -> None:
    seen = sight.of(CACHE)
    before, after = sight.of(UNSEEN)
    findings = [*checks.answers(seen), *checks.unseen(before, after)]
    cases = [each.finding_case for each in (*seen, before, after)]
    checking(findings, cases, "Another picture than the sent one is seen")


def test_pictures_in_company_are_not_mixed_up(sight: SightWalk, checking: Checking) -> None:
    seen = sight.of(COMPANY)
    cases = [each.finding_case for each in seen]
    checking(
        [*checks.answers(seen)], cases, "A client gets an answer about another client's picture"
    )


def test_bad_pictures_are_refused(sight: SightWalk, checking: Checking, evidence: Evidence) -> None:
    chosen = [each for each in sight.refused if each.group in {refused.FILE, refused.LIMIT}]
    evidence["answers"] = {each.name: [each.status, each.message] for each in chosen}
    cases = [each.finding_case for each in chosen]
    sees = "A picture that cannot be served gets no client error, or harms the server"
    checking([*checks.refusals(chosen)], cases, sees)


def test_other_media_are_refused(sight: SightWalk, checking: Checking, evidence: Evidence) -> None:
    chosen = [each for each in sight.refused if each.group == refused.MEDIA]
    evidence["answers"] = {each.name: [each.status, each.message] for each in chosen}
    cases = [each.finding_case for each in chosen]
    sees = "A video or a sound that is not served gets no client error"
    checking([*checks.refusals(chosen)], cases, sees)


def test_addresses_are_not_fetched_at_will(
    sight: SightWalk, checking: Checking, evidence: Evidence
) -> None:
    chosen = [each for each in sight.refused if each.group == refused.ADDRESS]
    private = [each for each in sight.refused if each.group == refused.PRIVATE]
    evidence["answers"] = {each.name: [each.status, each.message] for each in chosen + private}
    evidence["fetched"] = sight.fetched
    findings = [*checks.refusals(chosen)]
    findings += [
        Finding(
            each.finding_case,
            "the server fetched a picture from its own machine: it is started without "
            "--allowed-media-domains",
        )
        for each in private
        if sight.fetched
    ]
    cases = [each.finding_case for each in (*chosen, *private)]
    checking(
        findings, cases, "A client makes the server fetch an address that only the server can reach"
    )


def test_a_model_without_eyes_refuses_pictures(
    blindness: str, server: Endpoint, checking: Checking, evidence: Evidence
) -> None:
    if not blindness:
        raise NotApplicable("the model sees")
    from pytest_vllm_gates.vision.ask import refusal  # noqa: PLC0415 - httpx2

    answer = refusal(server, "a picture", refused.MEDIA, refused.picture_for_text_models())
    evidence["answer"] = [answer.status, answer.message]
    case = Case("a picture", {"group": answer.group}, answer.request)
    sees = "A picture for a text-only model gets no client error"
    checking([*checks.refusals([answer])], [case], sees)
