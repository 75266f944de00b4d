"""Every family's raw output is read by its file alone, and what an answer lacks of it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from conversations.exchanges import answer, exchange, family
from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.conversations.checks import tokens

FAMILIES = ("qwen3.5", "deepseek", "glm", "gemma", "deepseek/r1", "deepseek/v3.2", "glm/4.5")
WEATHER = ("get_weather", {"city": "Oslo"})
OTHER = ("get_weather", {"city": "Lima"})
SHORT = ("get_weather", {"city": "Oslo", "unit": "c", "a": "e"})
TIME: tuple[str, dict[str, str]] = ("get_time", {})
BAR = "\N{FULLWIDTH VERTICAL LINE}"
NOTE = ("save_note", {"text": 'He said "no",\nand & left.', "place": "Café Zoë"})


def call_text(name: str, made: tuple[str, dict[str, str]]) -> str:
    """Write a call as the family file describes it, with as many arguments as there are."""
    tools = family(name).tools
    assert tools is not None
    text = tools.call.replace("NAME", made[0])
    if "ARGUMENTS" in text:
        return text.replace("ARGUMENTS", json.dumps(made[1], ensure_ascii=False))
    start, end = REPEATED[name]
    head, item = text[: text.index(start)], text[text.index(start) : text.index(end) + len(end)]
    tail = text[text.index(end) + len(end) :]
    several = SEPARATOR.get(name, "").join(
        item.replace("KEY", key).replace("VALUE", value) for key, value in made[1].items()
    )
    return head + several + tail


# What a call says once for every argument, and what is between two.
REPEATED = {
    "qwen3.5": ("<parameter=KEY>", "</parameter>\n"),
    "glm": ("<arg_key>", "</arg_value>"),
    "glm/4.5": ("<arg_key>", "</arg_value>\n"),
    "gemma": ("KEY:", 'VALUE<|"|>'),
    "deepseek/v3.2": (f"<{BAR}DSML{BAR}parameter", f"</{BAR}DSML{BAR}parameter>\n"),
}
SEPARATOR = {"gemma": ","}


def raw(name: str, *made: tuple[str, dict[str, str]], thought: str = "", says: str = "") -> str:
    """Write what a model of the family generates when it thinks, answers and calls."""
    entry = family(name)
    thinking = ""
    if thought:
        assert entry.thinking is not None
        opened = entry.thinking.open if entry.thinking.opened_by == "model" else ""
        thinking = f"{opened}{thought}\n{entry.thinking.close}\n\n"
    calls = "".join(call_text(name, each) for each in made)
    return thinking + says + calls + entry.prompt.stop_tokens[0]


def said(*made: tuple[str, dict[str, str]], thought: str = "", says: str = "") -> Answer:
    """Return the answer that a right parser makes of it."""
    calls = tuple(
        ToolCall(name, json.dumps(values), f"call-{number}")
        for number, (name, values) in enumerate(made)
    )
    return answer(says, reasoning=thought, tool_calls=calls)


def told(name: str, text: str, whole: Answer, **fields: Any) -> list[str]:
    entry = exchange(whole, raw=text, tools="auto", **fields)
    return [*tokens.texts(entry, family(name)), *tokens.calls(entry, family(name))]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ((), {"thought": "Hm.", "says": "It is cold."}),
        ((), {"thought": "日本語で。", "says": "東京は雨です ☔。"}),
        ((WEATHER,), {"thought": "I need the weather."}),
        ((WEATHER,), {"thought": "I need it.", "says": "Let me see."}),
        ((WEATHER, OTHER, TIME), {"thought": "Three calls."}),
        ((TIME,), {"thought": "The clock knows."}),
        ((NOTE,), {"thought": "All as it is."}),
        ((SHORT,), {"thought": "In Celsius."}),
    ],
    ids=[
        "text", "scripts", "a call", "text and a call", "three", "no arguments", "awkward",
        "letters of the markup",
    ],
)  # fmt: skip
def test_a_right_answer_accounts_for_every_token(
    name: str, made: tuple[Any, ...], words: dict[str, str]
) -> None:
    assert told(name, raw(name, *made, **words), said(*made, **words), thinking="on") == []


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek", "glm", "gemma"])
def test_an_answer_without_thinking_is_all_content(name: str) -> None:
    right = said(says="It is cold.")
    assert told(name, raw(name, says="It is cold."), right, thinking="off") == []
    moved = replace(right, content="", reasoning="It is cold.")
    found = told(name, raw(name, says="It is cold."), moved, thinking="off")
    assert [text.partition(" is ")[0] for text in found] == ["reasoning", "content"]


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek", "glm", "gemma"])
def test_thinking_that_nobody_asked_for_is_no_content(name: str) -> None:
    """The tag that ends it is no text to a detokeniser: the user sees both run into each other."""
    text = raw(name, thought="They ask for it.", says="It is cold.")
    leaked = said(says="They ask for it.\n\n\nIt is cold.")
    found = told(name, text, leaked, thinking="off")
    assert [item.partition(" is ")[0] for item in found] == ["reasoning", "content"]


THOUGHT = {"thought": "They ask for it.", "says": "It is cold."}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"reasoning": ""}, ["reasoning"]),
        ({"reasoning": "They ask for"}, ["reasoning"]),
        ({"content": ""}, ["content"]),
        ({"content": "It is col"}, ["content"]),
        ({"content": "It is cold. It is cold."}, ["content"]),
        ({"reasoning": "They ask", "content": "for it. It is cold."}, ["reasoning", "content"]),
        ({"reasoning": "", "content": "They ask for it. It is cold."}, ["reasoning", "content"]),
        ({"reasoning": "They ask for it. It is cold.", "content": ""}, ["reasoning", "content"]),
    ],
    ids=[
        "no reasoning", "its end lost", "no content", "its end lost too", "twice", "split early",
        "thinks aloud", "all in reasoning",
    ],
)  # fmt: skip
def test_text_that_is_lost_or_elsewhere_is_told(
    name: str, changes: dict[str, str], fields: list[str]
) -> None:
    whole = replace(said(**THOUGHT), **changes)  # type: ignore[arg-type]
    found = told(name, raw(name, **THOUGHT), whole, thinking="on")
    assert [text.partition(" is ")[0] for text in found] == fields
    assert all("and the tokens say" in text for text in found)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("made", "came", "sentence"),
    [
        ((WEATHER, OTHER), (OTHER,), "1 calls came, and the tokens hold 2: "),
        ((TIME,), (), "0 calls came, and the tokens hold 1: "),
        ((WEATHER,), (WEATHER, WEATHER), "2 calls came, and the tokens hold 1: "),
        ((WEATHER,), (("getWeather", {"city": "Oslo"}),), "tool_calls[0] holds 'getWeather'"),
        ((WEATHER,), (("get_weather", {"city": "Rome"}),), "tool_calls[0] holds 'Rome', which"),
        ((WEATHER,), (("get_weather", {}),), "the calls lack what the tokens hold: 'city Oslo'"),
        ((NOTE,), (("save_note", {"text": NOTE[1]["text"]}),), "the calls lack what the tokens"),
        ((NOTE,), (("save_note", {**NOTE[1], "text": "He said "}),), "the calls lack what the "),
        ((NOTE,), (("save_note", {**NOTE[1], "place": "Caf? Zo?"}),), "tool_calls[0] holds 'Caf?"),
    ],
    ids=[
        "one of two", "the only one", "made up", "renamed", "another value", "no arguments",
        "one argument", "cut at a quote", "question marks",
    ],
)  # fmt: skip
def test_what_is_lost_of_a_call_is_told(
    name: str, made: tuple[Any, ...], came: tuple[Any, ...], sentence: str
) -> None:
    found = told(name, raw(name, *made, thought="Hm."), said(*came, thought="Hm."), thinking="on")
    assert any(text.startswith(sentence) for text in found), found


@pytest.mark.parametrize("name", FAMILIES)
def test_markup_in_an_argument_is_not_the_models(name: str) -> None:
    tools = family(name).tools
    assert tools is not None
    behind = tools.call.partition("ARGUMENTS" if "ARGUMENTS" in tools.call else "VALUE")[2]
    spoilt = ("get_weather", {"city": f"Oslo{behind}"})
    found = told(name, raw(name, WEATHER, thought="Hm."), said(spoilt, thought="Hm."))
    assert any(text.startswith("tool_calls[0] holds 'Oslo") for text in found), found


def test_an_answer_that_was_ended_is_judged_by_others() -> None:
    text = raw("qwen3.5", **THOUGHT)
    stopped = replace(said(), stop_reason="x")
    assert told("qwen3.5", text, stopped, stop_at="x") == []
    called = raw("qwen3.5", WEATHER, thought="Hm.")
    cut = replace(said(thought="Hm."), finish_reason="length")
    assert told("qwen3.5", called, cut) == []


def test_without_the_tokens_nothing_can_be_told() -> None:
    entry = exchange(said(), tools="auto")
    assert list(tokens.texts(entry, family("qwen3.5"))) == []
    assert list(tokens.calls(entry, family("qwen3.5"))) == []


def test_a_call_in_a_grammars_own_form_is_left_to_the_schema() -> None:
    forced = 'Hm.\n</think>\n\n[{"name": "get_weather", "parameters": {"city": "Oslo"}}]<|im_end|>'
    assert told("qwen3.5", forced, said(WEATHER, thought="Hm.")) == []


def test_a_family_without_tools_has_none_to_lose() -> None:
    entry = exchange(said(says="Paris."), raw="Paris.<end_of_turn>", thinking="off")
    assert list(tokens.texts(entry, family("gemma/3"))) == []
    assert list(tokens.calls(entry, family("gemma/3"))) == []


def test_an_unclosed_call_is_a_call() -> None:
    reading = tokens.read("Hm.</think><tool_call>\n<function=a>", family("qwen3.5"), thinks=True)
    assert (reading.reasoning, reading.content) == ("Hm.", "")
    assert reading.blocks == ("<tool_call>\n<function=a>",)


@pytest.mark.parametrize(
    ("serve", "says"),
    [
        ({"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
         "with --reasoning-parser qwen3 and --tool-call-parser hermes:"),
        ({"tool_call_parser": "hermes"}, "with --tool-call-parser hermes:"),
        ({"max_model_len": 8}, "with no parser:"),
        (None, "that the server was given"),
    ],
)  # fmt: skip
def test_the_parsers_that_were_to_read_it_are_named(
    serve: dict[str, Any] | None, says: str
) -> None:
    assert says in tokens.parser_hint(serve)


def test_arguments_that_are_lists_numbers_or_no_json_are_read() -> None:
    text = '<tool_call>\n<function=mix>\n<parameter=tags>\n["red", "blue"]\n</parameter>\n'
    text += "<parameter=count>\n2\n</parameter>\n"
    text = f"Hm.</think>{text}</function>\n</tool_call><|im_end|>"

    def came(arguments: str) -> list[str]:
        return told("qwen3.5", text, replace(said(thought="Hm."), tool_calls=(
            ToolCall("mix", arguments, "call-1"),
        )))  # fmt: skip

    assert came('{"tags": ["red", "blue"], "count": 2}') == []
    assert came('{"tags": ["red", "green"], "count": 2}') == [
        "tool_calls[0] holds 'green', which the tokens do not",
        "the calls lack what the tokens hold: 'blue'",
    ]
    assert came("tags: red")[0] == "tool_calls[0] holds 'tags: red', which the tokens do not"
