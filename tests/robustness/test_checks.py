"""The findings in a server's reactions, promise by promise."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.outcomes import Finding
from pytest_vllm_gates.robustness import checks
from pytest_vllm_gates.robustness.types import Checkup, Reaction, RobustnessResult, WrongRequest

HEALTHY = Completion(content="Paris.", finish_reason="stop", token_ids=(1, 2))


def reaction(
    status: int | None,
    message: str | None = "no",
    model: str = "",
    **more: Any,
) -> Reaction:
    case = WrongRequest(
        name="a case", **{key: more.pop(key) for key in ("expect", "names", "raw") if key in more}
    )
    defaults: dict[str, Any] = {"completion": False, "text": "what came", "seconds": 0.1}
    return Reaction(case, model, status, message, **{**defaults, **more})


def treatment(*reactions: Reaction, checkups: tuple[Checkup, ...] = ()) -> RobustnessResult:
    return RobustnessResult(HEALTHY, reactions, checkups, ())


def sentences(judged: checks.Judged) -> list[str]:
    return [finding.says for finding in judged[0]]


@pytest.mark.parametrize(
    ("tested_reaction", "expected"),
    [
        (reaction(500), ["answered 500: 'what came'"]),
        (reaction(503), ["answered 503: 'what came'"]),
        (reaction(302), ["answered 302: 'what came'"]),
        (reaction(None, text="no answer within 60 s"), ["no answer within 60 s"]),
        (reaction(400), []),
        (reaction(200), []),
    ],
)
def test_server_errors_and_silence_are_findings(
    tested_reaction: Reaction, expected: list[str]
) -> None:
    assert sentences(checks.unsurvived(treatment(tested_reaction))) == expected


@pytest.mark.parametrize(
    ("tested_reaction", "expected"),
    [
        (reaction(200, completion=True), ["answered 200, and not refused"]),
        (reaction(200, completion=True, expect="either"), []),
        (reaction(200, expect="either"), ["answered 200 with no completion: 'what came'"]),
        (reaction(400), []),
        (reaction(400, expect="either"), []),
        (reaction(200, completion=True, expect="answered"), []),
    ],
)
def test_answers_to_wrong_requests_are_findings(
    tested_reaction: Reaction, expected: list[str]
) -> None:
    assert sentences(checks.accepted(treatment(tested_reaction))) == expected


@pytest.mark.parametrize(
    ("tested_reaction", "expected"),
    [
        (reaction(200, completion=True, expect="answered"), []),
        (reaction(200, expect="answered"), ["answered 200 with no completion: 'what came'"]),
        (reaction(400, expect="answered"), ["answered 400 with no completion: 'what came'"]),
        (reaction(500, expect="answered"), []),
        (reaction(None, expect="answered"), []),
        (reaction(400), []),
    ],
)
def test_refusals_of_valid_requests_are_findings(
    tested_reaction: Reaction, expected: list[str]
) -> None:
    assert sentences(checks.turned_away(treatment(tested_reaction))) == expected


@pytest.mark.parametrize(
    ("tested_reaction", "expected"),
    [
        (reaction(400, None), ["refused with 400 and no JSON error: 'what came'"]),
        (reaction(400, "Bad.", names=("top_p", "json")),
         ["refused without a word of top_p or json: 'Bad.'"]),
        (reaction(400, "TOP_P is wrong", names=("top_p",)), []),
        (reaction(404, "Not Found"), []),
        (reaction(200), []),
        (reaction(500, None), []),
        (reaction(400, None, expect="answered"), []),
    ],
)  # fmt: skip
def test_refusals_without_a_reason_are_findings(
    tested_reaction: Reaction, expected: list[str]
) -> None:
    assert sentences(checks.unexplained(treatment(tested_reaction))) == expected


def test_each_promise_looks_only_at_its_own_cases() -> None:
    all_three = treatment(reaction(500), reaction(400), reaction(200))
    assert [
        len(judge(all_three)[1])
        for judge in (
            checks.unsurvived,
            checks.accepted,
            checks.unexplained,
        )
    ] == [3, 2, 1]


def test_a_server_that_stops_answering_names_the_cases() -> None:
    silent = Checkup(("first", "last"), Completion(error="ReadTimeout"))
    fine = Checkup(("alone",), HEALTHY)
    findings, cases = checks.unwell(treatment(checkups=(fine, silent)))
    assert [case.name for case in cases] == ["after 'alone' to 'alone'", "after 'first' to 'last'"]
    assert findings == [Finding(cases[1], "an ordinary question: no answer: ReadTimeout")]


def test_a_cases_request_is_shown_as_in_its_file() -> None:
    findings, _ = checks.unsurvived(treatment(reaction(500, raw=("{",))))
    assert findings[0].case.request == {"method": "POST", "path": "/chat/completions", "raw": ["{"]}
    assert findings[0].case.traits == {"case": "a case"}


def test_the_slowest_is_named() -> None:
    quick, slow = reaction(400), reaction(400, seconds=2.3456)
    assert checks.slowest([quick, slow, quick]) == ("a case", 2.346)


def test_refusals_omit_the_alias_and_numbers() -> None:
    messages = checks.refusals([reaction(400, "model qwen-1f2e has 4096 tokens", "qwen-1f2e")])
    assert list(messages.values()) == ["400: model MODEL has N tokens"]
    assert checks.refusals([reaction(200, None), reaction(500)]) == {}
    assert checks.refusals([reaction(404, None, text="Not Found: 9")]) == {
        "a case": "404: Not Found: N",
    }
