"""A replay reproduces the incident, does not reproduce it, or differs from it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from incident_folders_made import incident

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.incidents.compare import compare, decide, pairs
from pytest_vllm_gates.incidents.types import RecordedFinding, ReplayOutcome
from pytest_vllm_gates.outcomes import Case, Finding, Outcome

LEAK = "content contains the marker '</think>'"
DIED = "the server died while serving (exit status -9): ENGINE_DEAD\nAPIConnectionError: no"


def findings_of(*says: str, case: str = "plain") -> list[Finding]:
    return [Finding(Case(case), sentence) for sentence in says]


def recorded(*says: str) -> Any:
    return incident(
        findings=tuple(RecordedFinding(case="plain", says=sentence) for sentence in says)
    )


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.KNOWN, Outcome.WAIVED])
def test_same_finding_is_reproduced(outcome: Outcome) -> None:
    assert decide(recorded(LEAK), outcome, "", findings_of(LEAK))[0] is ReplayOutcome.REPRODUCED


def test_one_of_several_findings_is_enough() -> None:
    answer, why = decide(recorded(LEAK, "a", "b"), Outcome.FAIL, "", findings_of("b", "c"))
    assert (answer, why) == (ReplayOutcome.REPRODUCED, "1 of 3 findings came again")


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.NOT_APPLICABLE])
def test_passing_test_is_not_reproduced(outcome: Outcome) -> None:
    assert decide(recorded(LEAK), outcome, "", []) == (
        ReplayOutcome.NOT_REPRODUCED,
        "its test passes",
    )
    assert decide(recorded(LEAK), outcome, "no tools", []) == (
        ReplayOutcome.NOT_REPRODUCED,
        "no tools",
    )


def test_known_defect_is_not_the_incident() -> None:
    answer, why = decide(recorded(LEAK), Outcome.KNOWN, "", findings_of("another"))
    assert (answer, why) == (ReplayOutcome.NOT_REPRODUCED, "only known defects were found")


@pytest.mark.parametrize(
    "outcome", [Outcome.BLOCKED, Outcome.MISSING, Outcome.INCONCLUSIVE, Outcome.FAIL]
)
def test_outcome_without_judgement_is_different(outcome: Outcome) -> None:
    assert decide(recorded(LEAK), outcome, "something", [])[0] is ReplayOutcome.DIFFERENT


def test_same_finding_of_another_case_is_different() -> None:
    answer, _ = decide(recorded(LEAK), Outcome.FAIL, "", findings_of(LEAK, case="another"))
    assert answer is ReplayOutcome.DIFFERENT


def test_other_marker_is_different_unless_weights_differ() -> None:
    other_findings = findings_of("content contains the marker '<tool_call>'")
    assert decide(recorded(LEAK), Outcome.FAIL, "", other_findings)[0] is ReplayOutcome.DIFFERENT
    answer, _ = decide(recorded(LEAK), Outcome.FAIL, "", other_findings, other_weights=True)
    assert answer is ReplayOutcome.REPRODUCED


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("3 of 24 streams stopped for up to 3.1 s", "11 of 24 streams stopped for up to 2.9 s"),
        ("23 tokens, and 22 token ids came", "9 tokens, and 8 token ids came"),
        ("id qwen3.5-0a1b2c3d is unknown", "id qwen3.5-ffffffff is unknown"),
        ("whole log: /home/a/server.log", "whole log: /tmp/b/c/server.log"),
        ("12.5% were lost", "99% were lost"),
    ],
)  # fmt: skip
def test_numbers_paths_and_ids_may_differ(then: str, now: str) -> None:
    assert decide(recorded(then), Outcome.FAIL, "", findings_of(now))[0] is ReplayOutcome.REPRODUCED


def test_failure_without_findings_is_known_by_its_first_line() -> None:
    died = incident(findings=(), says=DIED)
    again = "the server died while serving (exit status -9): ENGINE_DEAD\nReadError: broken"
    answer, why = decide(died, Outcome.FAIL, again, [])
    assert (answer, why) == (ReplayOutcome.REPRODUCED, "its test fails as it did")
    assert decide(died, Outcome.BLOCKED, again, [])[0] is ReplayOutcome.DIFFERENT
    other_reason = (
        "the server died while serving (exit status -9): HOST_OOM\nAPIConnectionError: no"
    )
    assert decide(died, Outcome.FAIL, other_reason, [])[0] is ReplayOutcome.DIFFERENT


def test_golden_failure_is_known_by_its_difference() -> None:
    then = "prompt is not what was recorded in /a/b.txt\n(- recorded, + now)\n  - x\n  + y\n  z"
    golden = incident(findings=(), says=then)
    assert (
        decide(golden, Outcome.FAIL, then.replace("/a/b", "/c/d"), [])[0]
        is ReplayOutcome.REPRODUCED
    )
    other_reason = then.replace("+ y", "+ w")
    assert decide(golden, Outcome.FAIL, other_reason, [])[0] is ReplayOutcome.DIFFERENT


@pytest.mark.parametrize(
    ("then", "now"),
    [("- x", "- y"), ("'Paris' is empty\n- x", "'Rome' is empty\n- y"), ("a 'b' c", "a 'd' c")],
)
def test_quoted_output_is_ignored_with_other_weights(then: str, now: str) -> None:
    before = incident(findings=(), says=f"not as recorded: {then}\n{then}")
    again = f"not as recorded: {now}\n{now}"
    if "'" not in then:
        before = incident(findings=(), says=f"not as recorded\n{then}")
        again = f"not as recorded\n{now}"
    assert decide(before, Outcome.FAIL, again, [])[0] is ReplayOutcome.DIFFERENT
    answer, _ = decide(before, Outcome.FAIL, again, [], other_weights=True)
    assert answer is ReplayOutcome.REPRODUCED


@given(st.sampled_from(list(Outcome)), st.text(max_size=50), st.lists(st.text(max_size=20)))
def test_every_outcome_has_an_answer_and_a_reason(
    outcome: Outcome, reason: str, says: list[str]
) -> None:
    answer, why = decide(recorded(LEAK), outcome, reason, findings_of(*says))
    assert answer in ReplayOutcome and why
    assert (answer is ReplayOutcome.NOT_REPRODUCED) <= (
        outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE, Outcome.KNOWN)
    )


def sent(body: dict[str, Any], *pieces: tuple[float, str], status: int = 200) -> Sent:
    arrived = tuple((at, piece.encode()) for at, piece in pieces)
    return Sent("POST", "/v1/x", {}, json.dumps(body).encode(), "1", status, {}, arrived)


def event(content: str, **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": content}}
    return f"data: {json.dumps({'id': content, 'choices': [choice], **more})}\n\n"


def test_requests_are_matched_without_the_models_name() -> None:
    then = [sent({"model": "a", "n": 1}), sent({"model": "a", "n": 2}), sent({"n": 3})]
    now = [sent({"n": 2, "model": "b"}), sent({"model": "b", "n": 1}), sent({"n": 4})]
    found_pairs = pairs(then, now)
    assert [json.loads(request.body)["n"] for request, _ in found_pairs] == [1, 2]
    assert all(json.loads(a.body)["n"] == json.loads(b.body)["n"] for a, b in found_pairs)


def test_requests_are_matched_in_any_order_of_their_keys() -> None:
    first, second = (
        sent({"n": 1, "m": 2, "cache_salt": "a"}),
        sent({"cache_salt": "b", "m": 2, "n": 1}),
    )
    assert pairs([first], [second]) == [(first, second)]
    assert pairs([first], [replace(second, path="/v1/y")]) == []
    texts = [replace(first, body=body) for body in (b"no JSON", b"\xff", b"\xff no JSON")]
    assert pairs(texts, texts[::-1]) == [(exchange, exchange) for exchange in texts]


def test_each_request_is_matched_once() -> None:
    same = sent({"n": 1})
    assert len(pairs([same, same, same], [same, same])) == 2


def test_streams_are_compared_by_their_content() -> None:
    then = sent({}, (0.1, event("Par") + event("is")), (0.5, "data: [DONE]\n\n"))
    now = sent({}, (0.3, event("Paris")), (0.9, "data: [DONE]\n\n"))
    compared = compare(then, now)
    assert (compared.same, compared.diff) == (True, "")
    assert (compared.first_s, compared.seconds) == ((0.1, 0.3), (0.5, 0.9))


def test_difference_is_shown_by_field() -> None:
    then = sent({}, (0.1, event("Paris</think>")), (0.5, "data: [DONE]\n\n"))
    now = sent({}, (0.1, event("Paris")))
    assert compare(then, now).diff.splitlines() == [
        "--- then",
        "+++ now",
        "@@ -2,2 +2,3 @@",
        " choices[0].index: 0",
        "-choices[0].delta.content: Paris</think>",
        "+choices[0].delta.content: Paris",
        "+the stream has no end",
    ]


def stream_of(*deltas: dict[str, Any], **more: Any) -> Sent:
    events = [{"object": "chunk", "choices": [delta], **more} for delta in deltas]
    lines = [f"data:{json.dumps(event)}\n" for event in events]
    return sent({}, (0.1, "".join(lines)), (0.2, "data: [DONE]\n"))


def test_fields_of_a_stream_are_joined_by_their_index() -> None:
    def call(at: int, arguments: str) -> dict[str, Any]:
        part = {"index": at, "type": "function", "function": {"arguments": arguments}}
        return {"delta": {"role": "assistant", "tool_calls": [part]}}

    before = stream_of(call(0, "ab"), call(1, "x"), call(0, "c"), call(1, "y"), usage={"tokens": 3})
    now = stream_of(call(0, "a"), call(1, "xy"), call(0, "bd"), usage={"tokens": 4, "cost": None})
    assert compare(before, now).diff.splitlines() == [
        "--- then",
        "+++ now",
        "@@ -5,4 +5,4 @@",
        " choices[0].delta.tool_calls[0].type: function",
        "-choices[0].delta.tool_calls[0].function.arguments: abc",
        "-usage.tokens: 3",
        "+choices[0].delta.tool_calls[0].function.arguments: abd",
        "+usage.tokens: 4",
        " choices[0].delta.tool_calls[1].index: 1",
    ]
    role = stream_of(call(0, ""), call(0, "")), stream_of(call(0, ""))
    assert compare(*role).same


def test_token_ids_and_logprobs_are_not_compared() -> None:
    before = stream_of(
        {"delta": {"content": "a"}, "token_ids": [1, 2], "logprobs": {"content": [0.1]}}
    )
    now = stream_of({"delta": {"content": "a"}, "token_ids": [3], "logprobs": {"content": [0.2]}})
    assert compare(before, now).same
    places = stream_of({"delta": {"parts": ["a", {"text": "b"}]}})
    assert not compare(places, stream_of({"delta": {"parts": [{"text": "b"}, "a"]}})).same


def test_error_is_part_of_the_comparison() -> None:
    broken = replace(sent({}, (0.1, "x\n")), error="ReadTimeout: x")
    assert compare(broken, sent({}, (0.1, "x\n"))).diff.splitlines() == [
        "--- then", "+++ now", "@@ -1,3 +1,2 @@", " status: 200", "-error: ReadTimeout: x", " x",
    ]  # fmt: skip


def test_bytes_that_are_not_text_are_compared() -> None:
    before, now = (replace(sent({}), pieces=((0.12345, piece),)) for piece in (b"\xff", b"\xff!"))
    request = compare(before, now)
    assert (request.same, request.first_s, request.seconds) == (
        False,
        (0.123, 0.123),
        (0.123, 0.123),
    )
    assert request.document() == {
        "name": "1",
        "same": False,
        "diff": request.diff,
        "first_s": (0.123, 0.123),
        "seconds": (0.123, 0.123),
        "recorded": True,
    }


def test_fields_new_in_every_answer_are_ignored() -> None:
    before, now = ({"id": n, "created": n, "model": str(n), "said": "a"} for n in (1, 2))
    assert compare(sent({}, (0.1, json.dumps(before))), sent({}, (0.1, json.dumps(now)))).same
    nested = ({"data": [{"id": n, "name": "é"}]} for n in (1, 2))
    assert compare(*(sent({}, (0.1, json.dumps(body))) for body in nested)).same
    bodies = ({"data": [{"name": name}]} for name in ("é", "è"))
    assert compare(*(sent({}, (0.1, json.dumps(body))) for body in bodies)).diff.splitlines()[
        3:
    ] == [
        "   {",
        '-   "name": "é"',
        '+   "name": "è"',
        "   }",
    ]
    refused = sent({}, (0.1, json.dumps(before)), status=500)
    assert not compare(sent({}, (0.1, json.dumps(before))), refused).same


def test_unknown_answer_is_not_compared() -> None:
    compared = compare(replace(sent({}), status=None), sent({}, (0.5, "late")))
    assert (compared.recorded, compared.seconds) == (False, (None, 0.5))
    assert not [line for line in compared.diff.splitlines()[2:] if line.startswith("-")]


def test_missing_answer_has_no_times() -> None:
    assert compare(sent({}), sent({}, (0.5, "late"))).first_s == (None, 0.5)


@given(
    st.lists(st.tuples(st.floats(0, 9), st.text())), st.lists(st.tuples(st.floats(0, 9), st.text()))
)
def test_any_two_answers_can_be_compared(
    then: list[tuple[float, str]], now: list[tuple[float, str]]
) -> None:
    compared = compare(sent({}, *then), sent({}, *now))
    assert compared.same == (not compared.diff)


def answered(path: str, text: str, status: int = 200) -> Sent:
    return Sent("GET", path, {}, b"", "1", status, {}, ((0.1, text.encode()),))


def test_lists_of_models_differ_by_nothing_of_one_boot() -> None:
    then, now = (
        answered(
            "/v1/models",
            json.dumps(
                {
                    "object": "list",
                    "data": [
                        {
                            "id": f"qwen3.5-{alias}", "created": number, "root": "/weights",
                            "max_model_len": 4096, "permission": [{"id": f"modelperm-{alias}"}],
                        }
                    ],
                }
            ),
        )
        for alias, number in (("0a1b2c3d", 1), ("4e5f6071", 2))
    )  # fmt: skip
    models = ("qwen3.5-0a1b2c3d", "qwen3.5-4e5f6071")
    assert compare(then, now, models=models).diff == ""
    longer = answered("/v1/models", then.answer.decode().replace("4096", "32768"))
    assert "4096" in compare(then, longer, models=models).diff


def test_model_name_of_a_boot_is_not_a_difference() -> None:
    words = '{"error": {"message": "the model qwen3.5-%s does not know it"}}'
    then, now = (answered("/v1/x", words % alias, 404) for alias in ("0a1b2c3d", "4e5f6071"))
    assert not compare(then, now).same
    assert compare(then, now, models=("qwen3.5-0a1b2c3d", "qwen3.5-4e5f6071")).same


def test_times_and_ids_of_responses_are_not_differences() -> None:
    then, now = (
        answered(
            "/v1/responses",
            json.dumps({"id": f"resp_{n}", "created_at": n, "completed_at": n, "output": ["red"]}),
        )
        for n in (1, 2)
    )
    assert compare(then, now).same


@pytest.mark.parametrize("path", ["/metrics", "/load", "/metrics?x=1"])
def test_readings_of_a_moment_are_compared_by_their_status(path: str) -> None:
    assert compare(answered(path, "a 1\n"), answered(path, "a 2\n")).same
    assert not compare(answered(path, "a 1\n"), answered(path, "a 2\n", 404)).same


def test_last_digits_of_log_probabilities_are_not_differences() -> None:
    then, now = (
        answered("/v1/x", json.dumps({"choices": [{"logprobs": {"content": [{"logprob": p}]}}]}))
        for p in (-0.12345678, -0.12345671)
    )
    assert compare(then, now).same
    other = answered("/v1/x", then.answer.decode().replace("-0.1234", "-0.5234"))
    assert not compare(then, other).same
