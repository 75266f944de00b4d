"""The same requests are sent with features on and off, and every different answer is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.conversation import load_all
from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.features import battery
from pytest_vllm_gates.features.battery import Answers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOWHERE = Path("/nonexistent")


class Client:
    """Answers with the number of the request."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, body: Mapping[str, Any]) -> Completion:
        self.asked.append("alone")
        return Completion(content=str(body["messages"][0]["content"]), request=body)

    def together(self, bodies: Sequence[Mapping[str, Any]]) -> list[Completion]:
        self.asked.append(f"{len(bodies)} at once")
        return [Completion(content="x", request=body) for body in bodies]


def test_requests_are_of_every_kind() -> None:
    family = families.load("gemma", NOWHERE)
    bodies = battery.requests(family, load_all(NOWHERE), 64)
    kinds = {name.split()[0] for name in bodies}
    assert kinds == {"question", "shared", "format", "conversation"}
    assert bodies["format regex"]["structured_outputs"] == {"regex": "[a-z]{3}-[0-9]{3}"}
    assert bodies["conversation tool-one"]["tools"]
    first, second = (
        bodies[f"shared beginning {number}"]["messages"][0]["content"] for number in (1, 2)
    )
    assert first[:1500] == second[:1500]
    assert first != second
    without_tools = families.load("llama/3", NOWHERE)  # which calls none
    assert "conversation tool-one" not in battery.requests(without_tools, load_all(NOWHERE), 64)


def test_each_request_is_sent_alone_again_and_among_others() -> None:
    client = Client()
    bodies = {f"r{number}": {"messages": [{"content": "hi"}]} for number in range(10)}
    answers = battery.ask(client, bodies)  # type: ignore[arg-type]
    assert client.asked == ["alone"] * 20 + ["8 at once", "2 at once"]
    assert len(answers.by_request) == 30
    assert answers.by_request["r9, among others"].request["stream"] is True
    assert not answers.errors


def test_structured_output_is_streamed_four_and_sixteen_at_a_time() -> None:
    client = Client()
    names = ("question 1", "format regex", "format choice")
    answers = battery.ask(client, {name: {"messages": [{"content": "hi"}]} for name in names})  # type: ignore[arg-type]
    assert client.asked[6:] == ["3 at once", "4 at once", "16 at once"]
    streamed = [name for name in answers.by_request if " of 16" in name]
    assert len(streamed) == 16
    assert streamed[:2] == ["format regex, stream 1 of 16", "format choice, stream 2 of 16"]
    assert not any(name.startswith("question") for name in streamed)


def test_requests_that_fill_the_cache_come_at_once_and_others_again() -> None:
    client = Client()
    bodies = {f"r{number}": {"messages": [{"content": "hi"}]} for number in range(5)}
    pressing = {f"pressed {number}": {"messages": [{"content": "ho"}]} for number in (1, 2)}
    answers = battery.ask(client, bodies, pressing)  # type: ignore[arg-type]
    assert client.asked[10:] == ["5 at once", "2 at once", *["alone"] * battery.RETURNED]
    assert answers.by_request["pressed 2"].request["stream"] is True
    assert {"r0, afterwards", "r3, afterwards"} < {*answers.by_request}


def test_families_that_think_get_formats_after_thinking() -> None:
    qwen = battery.requests(families.load("qwen3.5", NOWHERE), load_all(NOWHERE), 64)
    body = qwen["format choice after thinking"]
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert body["max_tokens"] == 64
    gemma = battery.requests(families.load("gemma/3", NOWHERE), load_all(NOWHERE), 64)
    assert not any("thinking" in name for name in gemma if name.startswith("format"))


REGEX: dict[str, Any] = {"structured_outputs": {"regex": "[a-z]{3}-[0-9]{3}"}}
CHOICE: dict[str, Any] = {"structured_outputs": {"choice": ["yes", "no"]}}


def test_structured_output_that_its_format_does_not_allow_is_found() -> None:
    def answer(content: str, request: dict[str, Any], finish: str = "stop") -> Completion:
        return Completion(content=content, finish_reason=finish, request=request)

    answers = Answers({
        "format regex, alone": answer("abc-123", REGEX),
        "format regex, again": answer("abc-1234", REGEX),
        "format choice, alone": answer("no", CHOICE),
        "format choice, stream 3 of 16": answer("n", CHOICE),
        "format choice, again": answer("n", CHOICE, "length"),
        "format choice, among others": Completion(error="answered 500", request=CHOICE),
        "format regex after thinking, alone": replace(answer("", REGEX), reasoning="Hm."),
        "question 1, alone": answer("anything", {}),
    })  # fmt: skip
    findings, cases = battery.invalid(answers, ["ngram"])
    assert len(cases) == 4
    assert [(finding.case.name, finding.says) for finding in findings] == [
        (
            "format regex, again",
            "the answer 'abc-1234' is not of the regex '[a-z]{3}-[0-9]{3}'",
        ),
        ("format choice, stream 3 of 16", "the answer 'n' is not of the choice ['yes', 'no']"),
    ]
    assert findings[0].case.traits == {"case": "format regex, again", "ngram": "on"}


def test_another_answer_is_named_with_its_features() -> None:
    without = Answers({
        "a, alone": Completion(content="Paris.", token_ids=(1, 2), finish_reason="stop"),
        "b, alone": Completion(error="answered 400"),
        "c, alone": Completion(content="same", token_ids=(3,), finish_reason="stop"),
    })  # fmt: skip
    answers = Answers({
        "a, alone": Completion(content="Rome.", token_ids=(1, 9), finish_reason="stop"),
        "b, alone": Completion(content="x"),
        "c, alone": Completion(content="same", token_ids=(3,), finish_reason="stop"),
    })  # fmt: skip
    findings, cases, equivalent = battery.differences(without, answers, ["ngram"], invariant=True)
    (finding,) = findings
    assert finding.says == "without 'Paris.', with it 'Rome.' (from token 1 on)"
    assert finding.case.traits == {"case": "a, alone", "ngram": "on"}
    assert [case.name for case in cases] == ["a, alone", "c, alone"]
    assert equivalent == []


def test_another_backend_spells_structured_output_in_its_own_tokens() -> None:
    def answer(content: str, *tokens: int) -> Completion:
        return Completion(content=content, token_ids=tokens, finish_reason="stop")

    without = Answers({
        "format object, alone": answer("ada, 2533", 1, 11, 886),
        "format object, stream 2 of 4": answer("ada, 2533", 1, 11, 886),
        "format object, stream 4 of 4": answer("ada, 2533", 1, 11, 886),
        "question 1, alone": answer("Paris.", 7),
    })  # fmt: skip
    given = Answers({
        "format object, alone": answer("ada, 2800", 270, 887),
        "format object, stream 2 of 4": answer("ada, 2800", 270, 887),
        "format object, stream 4 of 4": answer("ada, 9999", 270, 999),
        "question 1, alone": answer("Rome.", 8),
    })  # fmt: skip
    findings, cases, _ = battery.differences(
        without, given, ["guidance"], invariant=True, another_grammar=True
    )
    assert [(one.case.name, one.says) for one in findings] == [
        (
            "format object, stream 4 of 4",
            "alone 'ada, 2800', now 'ada, 9999' (from token 1 on)",
        ),
        ("question 1, alone", "without 'Paris.', with it 'Rome.' (from token 0 on)"),
    ]
    assert len(cases) == 3
    same_backend, _, _ = battery.differences(without, given, ["ngram"], invariant=True)
    assert len(same_backend) == 4


def test_equally_likely_token_is_not_a_fault_if_kernels_round_differently() -> None:
    first, second = ({1: -0.1, 2: -0.12}, {2: -0.1, 1: -0.12})
    without = Answers({"a": Completion(content="x", token_ids=(1,), candidates=(first,))})
    answers = Answers({"a": Completion(content="y", token_ids=(2,), candidates=(second,))})
    findings, _, equivalent = battery.differences(without, answers, ["f"], invariant=False)
    assert findings == []
    assert equivalent == [{"case": "a", "parts_at": 0, "behind": 0.02}]
    assert battery.differences(without, answers, ["f"], invariant=True)[0]


def test_dead_server_gets_no_more_requests() -> None:
    class Dead(Client):
        def ask(self, body: Mapping[str, Any]) -> Completion:
            super().ask(body)
            return Completion(error="ConnectError", request=body)

    client = Dead()
    bodies = {f"r{number}": {"messages": [{"content": "hi"}]} for number in range(10)}
    answers = battery.ask(client, bodies)  # type: ignore[arg-type]
    assert client.asked == ["alone"] * 3
    assert [*answers.errors] == ["r0, alone", "r1, alone", "r2, alone"]
