"""A stop ends an answer at its first occurrence, and changes nothing if it does not occur."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange, family
from pytest_vllm_gates.conversations.checks import stops
from pytest_vllm_gates.conversations.stop_strings import NEVER

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Answer

PLAIN = answer(
    "The sea is wide.\nIt never sleeps.", reasoning="Two lines.", token_ids=(1, 2, 3, 4, 5)
)


def cut(content: str = "", **fields: Any) -> Answer:
    return replace(PLAIN, **{"content": content, "stop_reason": "x", **fields})


@pytest.mark.parametrize(
    ("reply", "stop_at", "sentence"),
    [
        (cut("The sea is "), "wide", None),
        (cut("The sea is wide"), 17, None),
        (None, "wide", None),
        (
            cut("The sea is wide"),
            "wide",
            "content contains the stop string 'wide': 'The sea is wide'",
        ),
        (cut(reasoning="Two lines"), "lines", "reasoning contains the stop string 'lines'"),
        (cut(tool_calls=(WEATHER,)), "Oslo", "tool_calls[0].arguments contains the stop string"),
    ],
)
def test_a_stop_string_in_a_field_is_a_fault(
    reply: Answer | None, stop_at: str | int, sentence: str | None
) -> None:
    sentences = list(stops.stop_in_fields(exchange(reply, stop="occurs", stop_at=stop_at)))
    assert sentences[0].startswith(sentence) if sentence else sentences == []


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (PLAIN, None),
        (replace(PLAIN, content=PLAIN.content[:-1]), "content: differs from character"),
        (replace(PLAIN, reasoning=""), "reasoning: empty in the stopped answer"),
        (replace(PLAIN, finish_reason="length"), "finish_reason: unstopped 'stop', stopped"),
        (replace(PLAIN, tool_calls=(WEATHER,)), "tool_calls: 0 in the unstopped answer"),
    ],
)
def test_changes_by_a_stop_that_never_occurs_are_faults(
    reply: Answer, sentence: str | None
) -> None:
    stopped_exchange = exchange(reply, stop="never", stop_at=NEVER, unstopped=PLAIN)
    sentences = list(stops.changed_by_unused_stop(stopped_exchange))
    if sentence is None:
        assert sentences == []
    else:
        (difference,) = sentences
        assert difference.startswith(
            f"with the stop string '{NEVER}', which does not occur, {sentence}"
        )


def test_a_stop_that_occurs_is_not_judged_as_unused() -> None:
    assert list(stops.changed_by_unused_stop(exchange(cut(), stop="occurs", unstopped=PLAIN))) == []
    assert list(stops.changed_by_unused_stop(exchange(PLAIN, stop="never"))) == []


@pytest.mark.parametrize(
    ("stop_at", "reply", "sentences"),
    [
        ("wide", cut("The sea is "), []),
        ("wide", cut("The sea is"), []),
        ("lines", cut(reasoning="Two "), []),
        ("Two", cut(reasoning=""), []),
        ("The", cut("\n"), []),
        (
            "wide",
            cut("The sea"),
            ["stopped at 'wide', content is 'The sea' and ought to be 'The sea is '"],
        ),
        (
            "wide",
            cut("The sea is wide."),
            ["stopped at 'wide', content is 'The sea is wide.' and ought to be 'The sea is '"],
        ),
        (
            "e",
            cut("The sea is wide.\nIt n"),
            [
                "stopped at 'e', reasoning is 'Two lines.' and ought to be 'Two lin'",
                "stopped at 'e', content is 'The sea is wide.\\nIt n' and ought to be ''",
            ],
        ),
        (
            "lines",
            cut("Two", reasoning=""),
            [
                "stopped at 'lines', reasoning is '' and ought to be 'Two '",
                "stopped at 'lines', content is 'Two' and ought to be ''",
            ],
        ),
        (
            "wide",
            cut("The sea is", finish_reason="length"),
            ["stopped at 'wide', finish_reason is 'length'"],
        ),
    ],
)
def test_an_answer_ends_at_its_stops_first_occurrence(
    stop_at: str, reply: Answer, sentences: list[str]
) -> None:
    stopped_exchange = exchange(reply, stop="occurs", stop_at=stop_at, unstopped=PLAIN)
    assert list(stops.wrong_end(stopped_exchange)) == sentences


TOKEN = "token 3 has to stop the answer at its token 2; "


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (cut("The sea", token_ids=(1, 2, 3)), None),
        (cut("The sea\n", token_ids=(1, 2, 3)), None),
        (cut("The sea", token_ids=(1, 2)), f"{TOKEN}2 tokens came, expected 3"),
        (PLAIN, f"{TOKEN}5 tokens came, expected 3"),
        (cut("The sea", token_ids=(1, 9, 3)), f"{TOKEN}3 tokens came, expected 3"),
        (
            cut("The sea", token_ids=(1, 2, 3), finish_reason="length"),
            "stopped at token 3, finish_reason is 'length'",
        ),
        (
            cut("A lake", token_ids=(1, 2, 3)),
            "stopped at token 3, content is 'A lake'",
        ),
    ],
)
def test_an_answer_ends_with_its_stop_token(reply: Answer, sentence: str | None) -> None:
    stopped_exchange = exchange(reply, stop="token_ids", stop_at=3, unstopped=PLAIN)
    assert list(stops.wrong_end(stopped_exchange)) == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "never", "stop_at": NEVER, "unstopped": PLAIN},
        {"stop": "occurs", "stop_at": "wide"},
        {"stop": "occurs", "unstopped": PLAIN},
    ],
    ids=["never", "nothing to compare with", "no stop"],
)
def test_wrong_end_needs_a_stop_and_a_plain_answer(fields: dict[str, Any]) -> None:
    assert list(stops.wrong_end(exchange(cut("no"), **fields))) == []
    assert list(stops.wrong_end(exchange(None, **fields))) == []


@pytest.mark.parametrize(
    ("stop", "reply"),
    [
        (["wide"], cut("The sea is ")),
        (["sleeps", "wide"], cut("The sea is ")),
        (["wide", "sleeps", "lines"], cut(reasoning="Two ")),
        (["is wide", "wide"], cut("The sea is ")),
        (["is wide", "wide"], cut("The sea ")),
    ],
    ids=["one", "the first of two", "reasoning first", "together, one", "together, the other"],
)
def test_the_first_of_several_stops_ends_the_answer(stop: list[str], reply: Answer) -> None:
    assert stops.cut_at_first(stop, reply, PLAIN) == []


WORDS = "one " + "z" * 40 + " two " + "z" * 40 + " one"
LONG = "one z" + "z" * 39


@pytest.mark.parametrize("field", ["reasoning", "content"])
def test_a_stop_is_complete_where_it_first_ends(field: str) -> None:
    def saying(text: str) -> Answer:
        return answer(**{"content": "", field: text})

    def faults_for(stop: list[str], stopped_text: str) -> list[str]:
        return stops.cut_at_first(stop, saying(stopped_text), saying(WORDS))

    assert faults_for(["one", "two"], "") == []
    assert faults_for(["two", "one"], "one " + "z" * 40) != []
    assert faults_for([LONG, "e z"], "on") == []
    assert faults_for([LONG, "e z"], "") != []


def test_stops_completed_by_one_token_have_no_order() -> None:
    plain = answer("a" + "z" * 15 + "b" + "c")
    assert stops.cut_at_first(["a", "b"], replace(plain, content="a" + "z" * 15), plain) == []
    assert stops.cut_at_first(["a", "c"], replace(plain, content=plain.content[:-1]), plain) != []


def test_the_second_of_several_stops_is_too_late() -> None:
    late = cut("The sea is wide.\nIt never ")
    assert stops.cut_at_first(["sleeps", "sea"], late, PLAIN) == [
        "stopped at 'sea', content is 'The sea is wide.\\nIt never ' and ought to be 'The '"
    ]


@pytest.mark.parametrize(
    ("name", "stop", "in_a_tag"),
    [
        ("kimi", ["es.\nNo mor", "n"], True),
        ("kimi", ["/th"], True),
        ("kimi", ["secrets"], False),
        ("deepseek", ["<t"], False),
        ("phi", ["n"], False),
    ],
)
def test_a_stop_may_occur_in_a_tag(name: str, stop: list[str], in_a_tag: bool) -> None:
    assert stops.in_a_tag(stop, family(name)) == in_a_tag
