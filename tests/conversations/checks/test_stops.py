"""A stop ends an answer where it first occurs, and changes nothing where it does not occur."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange
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
    ("whole", "stop_at", "sentence"),
    [
        (cut("The sea is "), "wide", None),
        (cut("The sea is wide"), 17, None),
        (None, "wide", None),
        (cut("The sea is wide"), "wide", "content holds the stop string 'wide': 'The sea is wide'"),
        (cut(reasoning="Two lines"), "lines", "reasoning holds the stop string 'lines'"),
        (cut(tool_calls=(WEATHER,)), "Oslo", "tool_calls[0].arguments holds the stop string"),
    ],
)
def test_a_stop_string_is_not_shown(
    whole: Answer | None, stop_at: str | int, sentence: str | None
) -> None:
    found = list(stops.stop_in_fields(exchange(whole, stop="occurs", stop_at=stop_at)))
    assert found[0].startswith(sentence) if sentence else found == []


@pytest.mark.parametrize(
    ("whole", "sentence"),
    [
        (PLAIN, None),
        (replace(PLAIN, content=PLAIN.content[:-1]), "content: differs from character"),
        (replace(PLAIN, reasoning=""), "reasoning: empty in the stopped answer"),
        (replace(PLAIN, finish_reason="length"), "finish_reason: unstopped 'stop', stopped"),
        (replace(PLAIN, tool_calls=(WEATHER,)), "tool_calls: 0 in the unstopped answer"),
    ],
)
def test_a_stop_that_never_occurs_changes_nothing(whole: Answer, sentence: str | None) -> None:
    entry = exchange(whole, stop="never", stop_at=NEVER, unstopped=PLAIN)
    found = list(stops.changed_by_unused_stop(entry))
    if sentence is None:
        assert found == []
    else:
        (told,) = found
        assert told.startswith(f"with the stop string '{NEVER}', which does not occur, {sentence}")


def test_what_does_occur_is_not_idle() -> None:
    assert list(stops.changed_by_unused_stop(exchange(cut(), stop="occurs", unstopped=PLAIN))) == []
    assert list(stops.changed_by_unused_stop(exchange(PLAIN, stop="never"))) == []


@pytest.mark.parametrize(
    ("stop_at", "whole", "sentences"),
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
def test_an_answer_ends_where_its_stop_first_occurs(
    stop_at: str, whole: Answer, sentences: list[str]
) -> None:
    entry = exchange(whole, stop="occurs", stop_at=stop_at, unstopped=PLAIN)
    assert list(stops.wrong_end(entry)) == sentences


TOKEN = "token 3 was to stop it and is the answer's token 2; "


@pytest.mark.parametrize(
    ("whole", "sentence"),
    [
        (cut("The sea", token_ids=(1, 2, 3)), None),
        (cut("The sea\n", token_ids=(1, 2, 3)), None),
        (cut("The sea", token_ids=(1, 2)), f"{TOKEN}2 tokens came where 3 were due"),
        (PLAIN, f"{TOKEN}5 tokens came where 3 were due"),
        (cut("The sea", token_ids=(1, 9, 3)), f"{TOKEN}3 tokens came where 3 were due"),
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
def test_a_stop_token_is_the_answers_last(whole: Answer, sentence: str | None) -> None:
    entry = exchange(whole, stop="token_ids", stop_at=3, unstopped=PLAIN)
    assert list(stops.wrong_end(entry)) == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "never", "stop_at": NEVER, "unstopped": PLAIN},
        {"stop": "occurs", "stop_at": "wide"},
        {"stop": "occurs", "unstopped": PLAIN},
    ],
    ids=["never", "nothing to compare with", "no stop"],
)
def test_where_says_nothing_without_a_place(fields: dict[str, Any]) -> None:
    assert list(stops.wrong_end(exchange(cut("no"), **fields))) == []
    assert list(stops.wrong_end(exchange(None, **fields))) == []


@pytest.mark.parametrize(
    ("stop", "whole"),
    [
        (["wide"], cut("The sea is ")),
        (["sleeps", "wide"], cut("The sea is ")),
        (["wide", "sleeps", "lines"], cut(reasoning="Two ")),
        (["is wide", "wide"], cut("The sea is ")),
        (["is wide", "wide"], cut("The sea ")),
    ],
    ids=["one", "the first of two", "reasoning first", "together, one", "together, the other"],
)
def test_the_first_of_several_stops_ends_it(stop: list[str], whole: Answer) -> None:
    assert stops.cut_at_first(stop, whole, PLAIN) == []


WORDS = "one " + "z" * 40 + " two " + "z" * 40 + " one"
LONG = "one z" + "z" * 39


@pytest.mark.parametrize("field", ["reasoning", "content"])
def test_a_stop_is_complete_where_it_first_ends(field: str) -> None:
    def saying(text: str) -> Answer:
        return answer(**{"content": "", field: text})

    def told(stop: list[str], came: str) -> list[str]:
        return stops.cut_at_first(stop, saying(came), saying(WORDS))

    assert told(["one", "two"], "") == []
    assert told(["two", "one"], "one " + "z" * 40) != []
    assert told([LONG, "e z"], "on") == []
    assert told([LONG, "e z"], "") != []


def test_stops_that_one_token_can_complete_have_no_order() -> None:
    plain = answer("a" + "z" * 15 + "b" + "c")
    assert stops.cut_at_first(["a", "b"], replace(plain, content="a" + "z" * 15), plain) == []
    assert stops.cut_at_first(["a", "c"], replace(plain, content=plain.content[:-1]), plain) != []


def test_the_second_of_several_stops_is_too_late() -> None:
    late = cut("The sea is wide.\nIt never ")
    assert stops.cut_at_first(["sleeps", "sea"], late, PLAIN) == [
        "stopped at 'sea', content is 'The sea is wide.\\nIt never ' and ought to be 'The '"
    ]
