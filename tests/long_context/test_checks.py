"""Only the faults of a server on a ladder of lengths are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.long_context import checks
from pytest_vllm_gates.long_context.types import (
    LadderResult,
    PromptReply,
    Refusal,
    Rung,
    RungResult,
)
from pytest_vllm_gates.numerics.checks import tolerance_of
from pytest_vllm_gates.server.watchdog import Hang, RestState

BF16 = tolerance_of("bfloat16")
PARIS = Completion(content="It is Paris.", finish_reason="stop", token_ids=(1, 2, 3))
AT_REST = RestState(PARIS, in_flight=0, kv_usage=0.0, memory_bytes=10**9)
RUNG = Rung(prompt_tokens=96, output_tokens=4)
WARM = replace(RUNG, prefix="warm")
MANY = replace(RUNG, at_once=2)
WHOLE = PromptReply(
    finish_reason="length",
    prompt_tokens=96,
    output=(5, 6, 7, 8),
    output_logprobs=(-0.1, -0.2, -0.1, -0.3),
)
TOO_LONG = Refusal(
    "far too long", 396, 4, 400, "This model's maximum context is 100.", None, AT_REST
)


def rung_result(rung: Rung = RUNG, *replies: PromptReply, **fields: Any) -> RungResult:
    values = {"rest": AT_REST} | fields
    return RungResult(rung, replies or (WHOLE,) * rung.at_once, **values)


def ladder(*rungs: RungResult, refusals: tuple[Refusal, ...] = (TOO_LONG,)) -> LadderResult:
    return LadderResult(
        100, PARIS, rungs or (rung_result(), rung_result(WARM), rung_result(MANY)), refusals
    )


def sentences(judged: checks.Judged) -> list[str]:
    return [finding.says for finding in judged[0]]


def test_requests_that_stay_in_flight_are_counted() -> None:
    """On a server of others they may be theirs."""
    busy = replace(AT_REST, in_flight=3)
    assert checks.still_in_flight(ladder()) == 0
    assert checks.still_in_flight(ladder(rung_result(rest=busy))) == 3
    assert checks.still_in_flight(ladder(refusals=(replace(TOO_LONG, rest=busy),))) == 3


def test_a_healthy_server_has_no_fault() -> None:
    complete = ladder()
    assert sentences(checks.unanswered(complete)) == []
    assert sentences(checks.changed(complete, BF16, invariant=True)) == []
    assert sentences(checks.unrefused(complete)) == []
    assert sentences(checks.unwell(complete, invariant=True)) == []
    assert sentences(checks.hangs(complete)) == []


def test_the_ladder_ends_at_the_context_to_the_token() -> None:
    rungs = checks.rungs(4096, 4096, 8, 4, 20)
    assert {rung.prompt_tokens + rung.output_tokens for rung in rungs} == {
        512, 1024, 2048, 3584, 4096,
    }  # fmt: skip
    assert [rung.at_once for rung in rungs[:3]] == [1, 1, 4]
    assert [rung.prefix for rung in rungs[:3]] == ["cold", "warm", "cold"]
    assert rungs[-1] == rungs[-2] == Rung(4088, 8, 20)


def test_a_plan_shorter_than_the_context_is_a_rung_of_its_own() -> None:
    rungs = checks.rungs(32768, 131072, 8, 4, 20)
    assert [rung.prompt_tokens + 8 for rung in rungs[::3]] == [4096, 8192, 16384, 32768, 131072, 131072]  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (PromptReply(error="answered 500: boom"), "answered 500: boom"),
        (replace(WHOLE, prompt_tokens=64), "the prompt had 96 tokens, but the server counts 64"),
        (replace(WHOLE, output=(5, 6)), "4 tokens were requested with ignore_eos, but 2"),
        (replace(WHOLE, finish_reason="stop"), "(finish_reason 'stop')"),
    ],
    ids=["no answer", "a prompt cut short", "an answer cut short", "another end"],
)
def test_incomplete_answers_are_findings(reply: PromptReply, sentence: str) -> None:
    (fault,) = sentences(checks.unanswered(ladder(rung_result(RUNG, reply))))
    assert sentence in fault


def test_other_tokens_on_a_warm_prefix_are_a_finding() -> None:
    diverged = replace(WHOLE, output=(5, 9, 7, 8))
    ladder_result = ladder(rung_result(), rung_result(WARM, diverged))
    (fault,) = sentences(checks.changed(ladder_result, BF16, invariant=True))
    assert "answered with other tokens than alone: token 1 is (9,), was (6,)" in fault


def test_diverging_answers_must_keep_their_scores() -> None:
    parted = replace(WHOLE, output=(5, 9, 7, 8))
    for lead, faults in ((0.2, 0), (9.0, 1)):
        alone = replace(WHOLE, leads=(9.0, lead, 9.0, 9.0))
        ladder_result = ladder(rung_result(RUNG, alone), rung_result(MANY, parted))
        assert len(sentences(checks.changed(ladder_result, BF16, invariant=False))) == faults
    off = replace(WHOLE, output_logprobs=(-4.1, -0.2, -0.1, -0.3))
    (fault,) = sentences(
        checks.changed(ladder(rung_result(), rung_result(MANY, off)), BF16, invariant=False)
    )
    assert "scores differ from alone" in fault


def test_the_first_answered_rung_is_the_reference() -> None:
    diverged = replace(WHOLE, output=(5, 9, 7, 8))
    unanswered = rung_result(RUNG, PromptReply(error="answered 500: boom"))
    ladder_result = ladder(
        unanswered, rung_result(WARM, diverged), rung_result(MANY, diverged, diverged)
    )
    findings, cases = checks.changed(ladder_result, BF16, invariant=True)
    assert (findings, len(cases)) == ([], 1)


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (replace(TOO_LONG, status=200, text="fine"), "answered 200, not refused"),
        (replace(TOO_LONG, status=500, text="boom"), "failed with 500, not refused"),
        (replace(TOO_LONG, status=None, text="ReadError"), "no answer: ReadError"),
        (replace(TOO_LONG, text="no"), "refused without naming the limit of 100: no"),
    ],
    ids=["silently cut", "an internal error", "a broken connection", "no word of the limit"],
)
def test_too_long_prompts_must_be_refused_with_the_limit(refusal: Refusal, sentence: str) -> None:
    (fault,) = sentences(checks.unrefused(ladder(refusals=(refusal,))))
    assert fault.startswith(sentence)


def test_an_answer_that_fills_the_remaining_room_is_right() -> None:
    short = replace(TOO_LONG, prompt_tokens=97, status=200, completion_tokens=3)
    assert sentences(checks.unrefused(ladder(refusals=(short,)))) == []
    more = replace(short, completion_tokens=4)
    assert sentences(checks.unrefused(ladder(refusals=(more,))))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (replace(AT_REST, canary=Completion(error="answered 500")), "no answer: answered 500"),
        (
            replace(AT_REST, canary=Completion(content="!!!")),
            "the answer to a short question differs from before",
        ),
        (replace(AT_REST, in_flight=2), "2 requests are still in flight"),
        (replace(AT_REST, kv_usage=0.25), "25.0% of the KV cache is in use"),
    ],
    ids=["dead", "garbled", "busy", "leaking"],
)
def test_a_server_not_at_rest_is_a_finding(state: RestState, sentence: str) -> None:
    (fault,) = sentences(checks.unwell(ladder(rung_result(rest=state)), invariant=True))
    assert sentence in fault


def test_a_hang_is_reported_with_the_health_status() -> None:
    hang = Hang(12.3, running=0, waiting=5, health="200", stacks=Path("out/stacks.txt"))
    ladder_result = ladder(rung_result(RUNG, PromptReply(error="no answer"), rest=None, hang=hang))
    (fault,) = sentences(checks.hangs(ladder_result))
    assert fault == (
        "hangs: 0 running, 5 waiting, and no progress for 12 s, while /health returns 200; the "
        "stacks of its processes: out/stacks.txt"
    )
    assert sentences(checks.unanswered(ladder_result)) == []
    assert not ladder_result.rungs[0].survived


def test_growth_is_from_one_crowd_to_the_next() -> None:
    grown = replace(AT_REST, memory_bytes=10**9 + 4096)
    assert checks.growth(ladder(rung_result(MANY), rung_result(MANY, rest=grown))) == 4096
    assert checks.growth(ladder(rung_result(), rung_result(MANY))) is None
    unseen = replace(AT_REST, memory_bytes=None)
    assert (
        checks.growth(ladder(rung_result(MANY, rest=unseen), rung_result(MANY, rest=unseen)))
        is None
    )
