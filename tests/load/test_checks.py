"""What a server does wrong under its load is told, and what it does right is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.load import checks as judge
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
    given = {"token_ids": TOKENS} | fields
    return AnsweredRequest(
        f"streams-{number}", begun, times[-1], 50, tuple((at, 1) for at in times), "usage", **given
    )


def phase(*answers: AnsweredRequest, **fields: Any) -> Phase:
    requests = answers or tuple(answer(number, number * 0.005) for number in range(USERS))
    busy = replace(IDLE, running=USERS, kv_usage=0.2)
    after = replace(
        IDLE, generated=100 + TOKENS * len(requests), read=1000 + 50 * len(requests), at=10.0
    )
    given: dict[str, Any] = {
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
    return Phase(**(given | fields))


def loaded(*phases: Phase, **fields: Any) -> LoadResult:
    given: dict[str, Any] = {
        "rides": (
            Probe("What?", PARIS, None, PARIS),
            Probe("ticket", None, "aa11", Completion(content="ticket aa11")),
            Probe("ticket", None, "bb22", Completion(content="ticket bb22")),
        ),
        "rest": RestState(PARIS, in_flight=0, kv_usage=0.0, memory_bytes=None),
    }
    return LoadResult(PARIS, phases or (phase(),), **(given | fields))


def told(judged: judge.Judged) -> list[str]:
    assert judged[1], "nothing was looked at"
    assert all(finding.case in judged[1] for finding in judged[0])
    return [finding.says for finding in judged[0]]


def looked_at(judged: judge.Judged) -> list[str]:
    """Return the names of what was looked at, by which known defects tell it, too."""
    assert all(case.traits == {"case": case.name} for case in judged[1])
    return [case.name for case in judged[1]]


def test_a_healthy_server_has_no_fault() -> None:
    load_result = loaded()
    assert told(judge.unanswered(load_result, LIMITS)) == []
    assert told(judge.hangs(load_result)) == []
    assert told(judge.uncounted(load_result)) == []
    assert told(judge.held_back(load_result)) == []
    assert told(judge.stalled(load_result)) == []
    assert told(judge.slow(load_result, LIMITS)) == []
    assert told(judge.changed(load_result, invariant=True)) == []
    assert told(judge.crossed(load_result)) == []
    assert told(judge.unwell(load_result, invariant=True)) == []
    assert judge.client_was_late(load_result, LIMITS) == ""
    assert not judge.others_came(load_result)


QUIET = {"name": "before", "alone": False}


def test_every_phase_that_can_be_judged_is_looked_at_by_its_name() -> None:
    load_result = loaded(phase(**QUIET), phase())
    assert looked_at(judge.unanswered(load_result, LIMITS)) == ["before", "streams"]
    assert looked_at(judge.hangs(load_result)) == ["before", "streams"]
    assert looked_at(judge.uncounted(load_result)) == ["streams"]
    assert looked_at(judge.held_back(load_result)) == ["streams"]
    assert looked_at(judge.stalled(load_result)) == ["streams"]
    assert looked_at(judge.slow(load_result, LIMITS)) == ["streams"]
    assert looked_at(judge.changed(load_result, invariant=True)) == ["What?"]
    assert looked_at(judge.crossed(load_result)) == ["ticket", "ticket"]
    assert [case.name for case in judge.unwell(load_result, invariant=True)[1]] == [
        "when all was over"
    ]


def test_an_answer_to_somebody_else_keeps_its_request() -> None:
    completion = replace(PARIS, request={"model": "x"})
    load_result = loaded(
        rides=(Probe("t", None, "aa11", completion), Probe("What?", PARIS, None, completion))
    )
    for judged in (judge.changed(load_result, invariant=True), judge.crossed(load_result)):
        assert [case.request for case in judged[1]] == [{"model": "x"}]


def test_failed_requests_are_counted_and_the_commonest_error_told() -> None:
    answers = [answer(number) for number in range(10)]
    answers[3] = replace(answers[3], error="answered 500: no")
    load_result = loaded(phase(*answers))
    (says,) = told(judge.unanswered(load_result, LIMITS))
    assert says == "1 of 10 requests failed, mostly: answered 500: no"
    lenient = LIMITS.model_copy(update={"error_rate": 0.1})
    assert told(judge.unanswered(load_result, lenient)) == []
    answers[4:7] = [replace(request, error="answered 429: busy") for request in answers[4:7]]
    answers[7] = replace(answers[7], error="timed out")
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    (says,) = told(judge.unanswered(loaded(phase(hang=hang), phase(*answers)), LIMITS))
    assert says == "5 of 10 requests failed, mostly: answered 429: busy"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (replace(answer(1), tokens=answer(1).tokens[:-1]), "and 19 came"),
        (replace(answer(1), token_ids=19), "20 tokens are counted and the ids of 19 came"),
        (replace(answer(1), prompt_tokens=49), "the prompt had 50 tokens and the server counts 49"),
    ],
)
def test_an_answer_with_other_counts_than_asked_for_is_told(
    changed: AnsweredRequest, says: str
) -> None:
    chunks = replace(answer(0), counted_by="chunks")
    (found,) = told(judge.unanswered(loaded(phase(chunks, changed, changed)), LIMITS))
    assert says in found


def test_chunks_are_no_tokens_and_are_not_held_against_what_was_asked_for() -> None:
    chunks = replace(answer(1), tokens=answer(1).tokens[:7], counted_by="chunks", token_ids=None)
    load_result = loaded(phase(answer(0), chunks))
    assert told(judge.unanswered(load_result, LIMITS)) == []
    assert judge.uncounted(load_result) == ([], [])


@pytest.mark.parametrize("counter", ["generated", "read"])
def test_counters_that_moved_by_other_sums_are_told(counter: str) -> None:
    whole = phase()
    assert whole.after
    less = replace(whole.after, **{counter: getattr(whole.after, counter) - 1})
    (says,) = told(judge.uncounted(loaded(phase(**QUIET), replace(whole, after=less))))
    assert "the server counts" in says


def test_counters_that_moved_by_more_were_moved_by_others() -> None:
    whole = phase()
    assert whole.after
    more = replace(whole, after=replace(whole.after, generated=whole.after.generated + 5))
    assert judge.others_came(loaded(more))
    assert not judge.others_came(loaded(replace(more, alone=False)))


def test_what_was_not_settled_beforehand_is_held_against_what_the_server_counts() -> None:
    found = phase()
    loose = replace(found, asked={request.name: ExpectedLengths() for request in found.answers})
    assert told(judge.unanswered(loaded(loose), LIMITS)) == []
    assert told(judge.uncounted(loaded(loose))) == []
    assert loose.after
    more = replace(loose.after, read=loose.after.read + 1)
    (says,) = told(judge.uncounted(loaded(replace(loose, after=more))))
    assert says == "prompts of 200 tokens were sent, and the server counts 201 as read"
    untold = tuple(replace(request, prompt_tokens=None) for request in loose.answers)
    assert told(judge.uncounted(loaded(replace(loose, answers=untold, after=more)))) == []


def test_counters_say_nothing_where_others_of_this_run_asked() -> None:
    assert judge.uncounted(loaded(phase(alone=False))) == ([], [])


@pytest.mark.parametrize(
    ("running", "waiting", "where"),
    [(2, 2, "2 wait in the server"), (3, 0, "the others wait before it")],
)
def test_fewer_places_than_planned_are_told(running: int, waiting: int, where: str) -> None:
    few = tuple(replace(IDLE, running=running, waiting=waiting, at=at / 10) for at in range(12))
    (says,) = told(judge.held_back(loaded(phase(**QUIET), phase(seen=few))))
    assert f"4 streams at once are planned, and at most {running} run while {where}" in says


def test_four_of_five_places_are_enough() -> None:
    assert told(judge.held_back(loaded(phase(users=5)))) == []


def test_a_phase_too_quick_to_be_seen_says_nothing_of_places() -> None:
    quick = phase()
    assert judge.held_back(loaded(replace(quick, seen=quick.seen[:9]))) == ([], [])
    assert told(judge.held_back(loaded(replace(quick, seen=quick.seen[:10])))) == []


def test_a_late_first_token_is_beyond_its_limit() -> None:
    slow = [answer(number, each=3.0) for number in range(USERS)]
    says = told(judge.slow(loaded(phase(*slow), phase()), LIMITS))
    assert says == [
        "p95 TTFT is 9.00 s, 6 s is the limit",
        "p95 ITL is 3000 ms, 200 ms is the limit",
        "0% of the requests had their first token within 6 s and then at most 200 ms a token, 90% "
        "have to",
    ]


def test_preemptions_are_beyond_their_limit() -> None:
    whole = phase()
    assert whole.after
    put_off = replace(whole, after=replace(whole.after, preempted=2))
    (says,) = told(judge.slow(loaded(put_off), LIMITS))
    assert says == "2 requests were put off because the KV cache was full, 0 may be"


def test_a_client_that_was_late_says_so() -> None:
    assert "up to 2.00 s late" in judge.client_was_late(loaded(phase(late_s=(2.0,) * 9)), LIMITS)


def stopped(number: int) -> AnsweredRequest:
    """Return an answer that stops for two seconds in its middle."""
    whole = answer(number, each=0.05)
    late = [(at + (2.0 if place >= TOKENS // 2 else 0.0), 1) for place, (at, _) in
            enumerate(whole.tokens)]  # fmt: skip
    return replace(whole, tokens=tuple(late), ended_s=late[-1][0])


def test_a_stream_that_stops_alone_is_told() -> None:
    others = [answer(number, number * 0.5, each=0.05) for number in range(1, 8)]
    (says,) = told(judge.stalled(loaded(phase(**QUIET), phase(stopped(0), *others))))
    assert says == ("1 of 8 streams stopped for up to 2.0 s while others went on; 50 ms are usual")


def test_two_streams_are_enough_to_see_that_one_stops_and_one_is_not() -> None:
    long = answer(1, each=0.2)
    (says,) = told(judge.stalled(loaded(phase(stopped(0), long))))
    assert says.startswith("1 of 2 streams stopped for up to 2.")
    assert judge.stalled(loaded(phase(stopped(0)))) == ([], [])


def test_streams_that_take_turns_do_not_stop() -> None:
    turns = [answer(number, 100 + number * 0.005, each=0.05) for number in range(10)]
    assert told(judge.stalled(loaded(phase(*turns)))) == []
    # Others had their tokens, but for the half of the time in which the machine stood still.
    half = [replace(answer(n), tokens=((99.9, 1), (100, 1), (101, 1), (102, 1))) for n in (1, 2)]
    long = replace(answer(0), tokens=((99.9, 1), (100, 1), (102, 1)))
    assert told(judge.stalled(loaded(phase(long, *half)))) == []


def test_a_machine_that_stops_all_of_them_is_not_told() -> None:
    all_of_them = [stopped(number) for number in range(USERS)]
    assert told(judge.stalled(loaded(phase(*all_of_them)))) == []


def test_an_answer_that_load_changes_is_told() -> None:
    rome = replace(PARIS, content="It is Rome.", token_ids=(1, 2, 4))
    ticket = Probe("ticket", None, "aa11", Completion(content="ticket aa11"))
    load_result = loaded(rides=(ticket, Probe("What?", PARIS, None, rome)))
    (says,) = told(judge.changed(load_result, invariant=True))
    assert "now 'It is Rome.'" in says


def test_where_rounding_may_decide_an_answer_that_is_nearly_as_likely_is_the_same() -> None:
    doubt = replace(PARIS, candidates=({1: -0.1}, {2: -0.1}, {3: -0.7, 4: -0.8}))
    rome = replace(PARIS, content="It is Rome.", token_ids=(1, 2, 4))
    load_result = loaded(
        rides=(Probe("What?", doubt, None, rome),),
        rest=RestState(rome, in_flight=0, kv_usage=0.0, memory_bytes=None),
    )
    load_result = replace(load_result, healthy=doubt)
    for invariant, faults in ((True, 1), (False, 0)):
        assert len(told(judge.changed(load_result, invariant=invariant))) == faults
        assert len(told(judge.unwell(load_result, invariant=invariant))) == faults


def test_a_ticket_that_is_anothers_is_told() -> None:
    mixed = (
        Probe("ticket", None, "aa11", Completion(content="ticket bb22")),
        Probe("ticket", None, "bb22", Completion(content="ticket bb22")),
    )
    first, second = told(judge.crossed(loaded(rides=mixed)))
    assert "holds 'bb22'" in first
    assert "does not hold its own 'aa11'" in second


def test_a_server_that_does_not_come_to_rest_is_told() -> None:
    busy = RestState(PARIS, in_flight=3, kv_usage=0.1, memory_bytes=None)
    (says,) = told(judge.unwell(loaded(rest=busy), invariant=True))
    assert "3 requests are still in flight" in says
    assert judge.unwell(loaded(rest=None), invariant=True) == ([], [])


def test_a_hang_is_told_once() -> None:
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    broken = [replace(answer(number), error="nothing came for 30 s") for number in range(3)]
    load_result = loaded(phase(*broken, hang=hang, after=None), rest=None)
    (says,) = told(judge.hangs(load_result))
    assert says == (
        "hangs: 8 running, 2 waiting, and for 30 s nothing has moved while /health says 200"
    )
    assert told(judge.unanswered(load_result, LIMITS)) == []


def test_a_hang_of_a_ramp_is_told_too() -> None:
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    step = RampStep(4.0, phase(hang=hang), Limit("it hangs", clients=False))
    (says,) = told(judge.hangs(loaded(ramp=(step,), rest=None)))
    assert "8 running, 2 waiting" in says
