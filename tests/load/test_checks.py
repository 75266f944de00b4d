"""Faults of a server under load are reported, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.load import checks
from pytest_vllm_gates.load.types import (
    AnsweredRequest,
    ExpectedLengths,
    Limit,
    LoadResult,
    Phase,
    Probe,
    RampStep,
)
from pytest_vllm_gates.server.metrics import Load
from pytest_vllm_gates.server.watchdog import Hang, RestState

LIMITS = planned_traffic().limits
PARIS = Completion(content="It is Paris.", finish_reason="stop", token_ids=(1, 2, 3))
USERS, TOKENS = 4, 20
IDLE = Load(at=0.0, running=0, waiting=0, generated=100, read=1000, preempted=0, kv_usage=0.0)


def answer(number: int, begun: float = 0.0, each: float = 0.02, **fields: Any) -> AnsweredRequest:
    """Return an answer whose tokens come one by one, the first after three times that."""
    times = [begun + (3 + place) * each for place in range(TOKENS)]
    values = {"token_ids": TOKENS} | fields
    return AnsweredRequest(
        f"streams-{number}", begun, times[-1], 50, tuple((at, 1) for at in times), "usage", **values
    )


def phase(*answers: AnsweredRequest, **fields: Any) -> Phase:
    requests = answers or tuple(answer(number, number * 0.005) for number in range(USERS))
    busy = replace(IDLE, running=USERS, kv_usage=0.2)
    after = replace(
        IDLE, generated=100 + TOKENS * len(requests), read=1000 + 50 * len(requests), at=10.0
    )
    values: dict[str, Any] = {
        "name": "streams",
        "alone": True,
        "users": USERS,
        "asked": {request.name: ExpectedLengths(50, TOKENS) for request in requests},
        "answers": requests,
        "took_s": 2.0,
        "late_s": (0.001,) * len(requests),
        "before": IDLE,
        "after": after,
        "seen": tuple(replace(busy, at=float(at)) for at in range(12)),
    }
    return Phase(**(values | fields))


def loaded(*phases: Phase, **fields: Any) -> LoadResult:
    values: dict[str, Any] = {
        "probes": (
            Probe("What?", PARIS, None, PARIS),
            Probe("ticket", None, "aa11", Completion(content="ticket aa11")),
            Probe("ticket", None, "bb22", Completion(content="ticket bb22")),
        ),
        "rest": RestState(PARIS, in_flight=0, kv_usage=0.0, memory_bytes=None),
    }
    return LoadResult(PARIS, phases or (phase(),), **(values | fields))


def messages(judged: checks.Judged) -> list[str]:
    assert judged[1], "nothing was looked at"
    assert all(finding.case in judged[1] for finding in judged[0])
    return [finding.says for finding in judged[0]]


def case_names(judged: checks.Judged) -> list[str]:
    """Return the names of the judged cases, which known defects use, too."""
    assert all(case.traits == {"case": case.name} for case in judged[1])
    return [case.name for case in judged[1]]


def test_healthy_server_has_no_findings() -> None:
    load_result = loaded()
    assert messages(checks.unanswered(load_result, LIMITS)) == []
    assert messages(checks.hangs(load_result)) == []
    assert messages(checks.uncounted(load_result)) == []
    assert messages(checks.below_concurrency(load_result)) == []
    assert messages(checks.stalled(load_result)) == []
    assert messages(checks.slow(load_result, LIMITS)) == []
    assert messages(checks.changed(load_result, invariant=True)) == []
    assert messages(checks.mixed_tickets(load_result)) == []
    assert messages(checks.not_recovered(load_result, invariant=True)) == []
    assert checks.client_was_late(load_result, LIMITS) == ""
    assert not checks.other_clients(load_result)


QUIET = {"name": "before", "alone": False}


def test_cases_are_named_after_their_phases() -> None:
    load_result = loaded(phase(**QUIET), phase())
    assert case_names(checks.unanswered(load_result, LIMITS)) == ["before", "streams"]
    assert case_names(checks.hangs(load_result)) == ["before", "streams"]
    assert case_names(checks.uncounted(load_result)) == ["streams"]
    assert case_names(checks.below_concurrency(load_result)) == ["streams"]
    assert case_names(checks.stalled(load_result)) == ["streams"]
    assert case_names(checks.slow(load_result, LIMITS)) == ["streams"]
    assert case_names(checks.changed(load_result, invariant=True)) == ["What?"]
    assert case_names(checks.mixed_tickets(load_result)) == ["ticket", "ticket"]
    assert [case.name for case in checks.not_recovered(load_result, invariant=True)[1]] == [
        "when all was over"
    ]


def test_probe_cases_keep_their_requests() -> None:
    completion = replace(PARIS, request={"model": "x"})
    load_result = loaded(
        probes=(Probe("t", None, "aa11", completion), Probe("What?", PARIS, None, completion))
    )
    for judged in (checks.changed(load_result, invariant=True), checks.mixed_tickets(load_result)):
        assert [case.request for case in judged[1]] == [{"model": "x"}]


def test_failed_requests_are_reported_with_commonest_error() -> None:
    answers = [answer(number) for number in range(10)]
    answers[3] = replace(answers[3], error="answered 500: no")
    load_result = loaded(phase(*answers))
    (message,) = messages(checks.unanswered(load_result, LIMITS))
    assert message == "1 of 10 requests failed, mostly: answered 500: no"
    lenient = LIMITS.model_copy(update={"error_rate": 0.1})
    assert messages(checks.unanswered(load_result, lenient)) == []
    answers[4:7] = [replace(request, error="answered 429: busy") for request in answers[4:7]]
    answers[7] = replace(answers[7], error="timed out")
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    (message,) = messages(checks.unanswered(loaded(phase(hang=hang), phase(*answers)), LIMITS))
    assert message == "5 of 10 requests failed, mostly: answered 429: busy"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (replace(answer(1), tokens=answer(1).tokens[:-1]), "and 19 came"),
        (replace(answer(1), token_ids=19), "20 tokens are counted and the ids of 19 came"),
        (replace(answer(1), prompt_tokens=49), "the prompt had 50 tokens and the server counts 49"),
    ],
)
def test_unexpected_token_counts_are_reported(changed: AnsweredRequest, expected: str) -> None:
    chunks = replace(answer(0), counted_by="chunks")
    (message,) = messages(checks.unanswered(loaded(phase(chunks, changed, changed)), LIMITS))
    assert expected in message


def test_chunk_counts_are_not_compared_with_planned_tokens() -> None:
    chunks = replace(answer(1), tokens=answer(1).tokens[:7], counted_by="chunks", token_ids=None)
    load_result = loaded(phase(answer(0), chunks))
    assert messages(checks.unanswered(load_result, LIMITS)) == []
    assert checks.uncounted(load_result) == ([], [])


@pytest.mark.parametrize("counter", ["generated", "read"])
def test_wrong_server_counters_are_reported(counter: str) -> None:
    measured = phase()
    assert measured.after
    less = replace(measured.after, **{counter: getattr(measured.after, counter) - 1})
    (message,) = messages(checks.uncounted(loaded(phase(**QUIET), replace(measured, after=less))))
    assert "the server counts" in message


def test_excess_in_counters_means_other_clients() -> None:
    measured = phase()
    assert measured.after
    more = replace(measured, after=replace(measured.after, generated=measured.after.generated + 5))
    assert checks.other_clients(loaded(more))
    assert not checks.other_clients(loaded(replace(more, alone=False)))


def test_requests_before_a_phase_mean_other_clients() -> None:
    measured = phase()
    assert measured.before
    busy = replace(measured, before=replace(measured.before, waiting=1))
    assert checks.other_clients(loaded(busy))
    assert not checks.other_clients(loaded(replace(busy, alone=False)))


def test_tokens_of_a_failed_answer_mean_no_other_clients() -> None:
    measured = phase()
    assert measured.after
    first, *others = measured.answers
    more = replace(
        measured,
        after=replace(measured.after, generated=measured.after.generated + 5),
        answers=(replace(first, error="broke off"), *others),
    )
    assert not checks.other_clients(loaded(more))


def test_unplanned_lengths_are_compared_with_server_counters() -> None:
    measured = phase()
    loose = replace(
        measured, asked={request.name: ExpectedLengths() for request in measured.answers}
    )
    assert messages(checks.unanswered(loaded(loose), LIMITS)) == []
    assert messages(checks.uncounted(loaded(loose))) == []
    assert loose.after
    more = replace(loose.after, read=loose.after.read + 1)
    (message,) = messages(checks.uncounted(loaded(replace(loose, after=more))))
    assert message == "prompts of 200 tokens were sent, and the server counts 201 as read"
    untold = tuple(replace(request, prompt_tokens=None) for request in loose.answers)
    assert messages(checks.uncounted(loaded(replace(loose, answers=untold, after=more)))) == []


def test_counters_are_not_checked_beside_other_requests() -> None:
    assert checks.uncounted(loaded(phase(alone=False))) == ([], [])


@pytest.mark.parametrize(
    ("running", "waiting", "queue"),
    [(2, 2, "2 wait in the server"), (3, 0, "the others wait before it")],
)
def test_fewer_running_streams_than_planned_are_reported(
    running: int, waiting: int, queue: str
) -> None:
    few = tuple(replace(IDLE, running=running, waiting=waiting, at=at / 10) for at in range(12))
    (message,) = messages(checks.below_concurrency(loaded(phase(**QUIET), phase(seen=few))))
    assert f"4 concurrent streams are planned, and at most {running} run while {queue}" in message


def test_four_of_five_running_streams_are_enough() -> None:
    assert messages(checks.below_concurrency(loaded(phase(users=5)))) == []


def test_too_few_samples_do_not_judge_running_streams() -> None:
    quick = phase()
    assert checks.below_concurrency(loaded(replace(quick, seen=quick.seen[:9]))) == ([], [])
    assert messages(checks.below_concurrency(loaded(replace(quick, seen=quick.seen[:10])))) == []


def test_late_first_token_exceeds_its_limit() -> None:
    slow = [answer(number, each=3.0) for number in range(USERS)]
    lines = messages(checks.slow(loaded(phase(*slow), phase()), LIMITS))
    assert lines == [
        "p95 TTFT is 9.00 s, 6 s is the limit",
        "p95 ITL is 3000 ms, 200 ms is the limit",
        "0% of the requests had their first token within 6 s and then at most 200 ms a token, 90% "
        "have to",
    ]


def test_preemptions_exceed_their_limit() -> None:
    measured = phase()
    assert measured.after
    put_off = replace(measured, after=replace(measured.after, preempted=2))
    (message,) = messages(checks.slow(loaded(put_off), LIMITS))
    assert message == "2 requests were put off because the KV cache was full, 0 may be"


def test_late_client_is_reported() -> None:
    assert "up to 2.00 s late" in checks.client_was_late(loaded(phase(late_s=(2.0,) * 9)), LIMITS)


def stopped(number: int) -> AnsweredRequest:
    """Return an answer that stops for two seconds in its middle."""
    steady = answer(number, each=0.05)
    late = [(at + (2.0 if place >= TOKENS // 2 else 0.0), 1) for place, (at, _) in
            enumerate(steady.tokens)]  # fmt: skip
    return replace(steady, tokens=tuple(late), ended_s=late[-1][0])


def test_stream_that_stalls_alone_is_reported() -> None:
    others = [answer(number, number * 0.5, each=0.05) for number in range(1, 8)]
    (message,) = messages(checks.stalled(loaded(phase(**QUIET), phase(stopped(0), *others))))
    assert message == (
        "1 of 8 streams stopped for up to 2.0 s while others went on; 50 ms are usual"
    )


def test_stall_needs_a_second_stream_to_compare_with() -> None:
    long = answer(1, each=0.2)
    (message,) = messages(checks.stalled(loaded(phase(stopped(0), long))))
    assert message.startswith("1 of 2 streams stopped for up to 2.")
    assert checks.stalled(loaded(phase(stopped(0)))) == ([], [])


def test_streams_that_take_turns_are_not_stalled() -> None:
    turns = [answer(number, 100 + number * 0.005, each=0.05) for number in range(10)]
    assert messages(checks.stalled(loaded(phase(*turns)))) == []
    # Others had their tokens, except for half of the time, in which the machine was stopped.
    half = [replace(answer(n), tokens=((99.9, 1), (100, 1), (101, 1), (102, 1))) for n in (1, 2)]
    long = replace(answer(0), tokens=((99.9, 1), (100, 1), (102, 1)))
    assert messages(checks.stalled(loaded(phase(long, *half)))) == []


def test_pause_of_all_streams_is_not_a_stall() -> None:
    all_of_them = [stopped(number) for number in range(USERS)]
    assert messages(checks.stalled(loaded(phase(*all_of_them)))) == []


def test_answer_changed_by_load_is_reported() -> None:
    rome = replace(PARIS, content="It is Rome.", token_ids=(1, 2, 4))
    ticket = Probe("ticket", None, "aa11", Completion(content="ticket aa11"))
    load_result = loaded(probes=(ticket, Probe("What?", PARIS, None, rome)))
    (message,) = messages(checks.changed(load_result, invariant=True))
    assert "now 'It is Rome.'" in message


def test_rounding_tie_counts_as_same_answer() -> None:
    doubt = replace(PARIS, candidates=({1: -0.1}, {2: -0.1}, {3: -0.7, 4: -0.8}))
    rome = replace(PARIS, content="It is Rome.", token_ids=(1, 2, 4))
    load_result = loaded(
        probes=(Probe("What?", doubt, None, rome),),
        rest=RestState(rome, in_flight=0, kv_usage=0.0, memory_bytes=None),
    )
    load_result = replace(load_result, healthy=doubt)
    for invariant, faults in ((True, 1), (False, 0)):
        assert len(messages(checks.changed(load_result, invariant=invariant))) == faults
        assert len(messages(checks.not_recovered(load_result, invariant=invariant))) == faults


def test_ticket_of_another_request_is_reported() -> None:
    mixed = (
        Probe("ticket", None, "aa11", Completion(content="ticket bb22")),
        Probe("ticket", None, "bb22", Completion(content="ticket bb22")),
    )
    first, second = messages(checks.mixed_tickets(loaded(probes=mixed)))
    assert "contains 'bb22'" in first
    assert "does not contain its own 'aa11'" in second


def test_server_that_stays_busy_is_reported() -> None:
    busy = RestState(PARIS, in_flight=3, kv_usage=0.1, memory_bytes=None)
    (message,) = messages(checks.not_recovered(loaded(rest=busy), invariant=True))
    assert "3 requests are still in flight" in message
    assert checks.not_recovered(loaded(rest=None), invariant=True) == ([], [])


def test_hang_is_reported_once() -> None:
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    broken = [replace(answer(number), error="nothing came for 30 s") for number in range(3)]
    load_result = loaded(phase(*broken, hang=hang, after=None), rest=None)
    (message,) = messages(checks.hangs(load_result))
    assert message == (
        "hangs: 8 running, 2 waiting, and no progress for 30 s, while /health returns 200"
    )
    assert messages(checks.unanswered(load_result, LIMITS)) == []


def test_hang_during_a_ramp_is_reported() -> None:
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    step = RampStep(4.0, phase(hang=hang), Limit("it hangs", clients=False))
    (message,) = messages(checks.hangs(loaded(ramp=(step,), rest=None)))
    assert "8 running, 2 waiting" in message
