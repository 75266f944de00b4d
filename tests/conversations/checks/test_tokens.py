"""Every family's raw output is read by its file alone; text that an answer lacks is reported."""

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
    head, argument = text[: text.index(start)], text[text.index(start) : text.index(end) + len(end)]
    tail = text[text.index(end) + len(end) :]
    several = SEPARATOR.get(name, "").join(
        argument.replace("KEY", key).replace("VALUE", value) for key, value in made[1].items()
    )
    return head + several + tail


# The parts of a call for each argument, and the text between two.
REPEATED = {
    "qwen3.5": ("<parameter=KEY>", "</parameter>\n"),
    "glm": ("<arg_key>", "</arg_value>"),
    "glm/4.5": ("<arg_key>", "</arg_value>\n"),
    "gemma": ("KEY:", 'VALUE<|"|>'),
    "deepseek/v3.2": (f"<{BAR}DSML{BAR}parameter", f"</{BAR}DSML{BAR}parameter>\n"),
}
SEPARATOR = {"gemma": ","}


def raw(name: str, *made: tuple[str, dict[str, str]], thought: str = "", content: str = "") -> str:
    """Write the output of a model of the family that thinks, answers and calls."""
    model_family = family(name)
    thinking = ""
    if thought:
        assert model_family.thinking is not None
        opened = model_family.thinking.open if model_family.thinking.opened_by == "model" else ""
        thinking = f"{opened}{thought}\n{model_family.thinking.close}\n\n"
    calls = "".join(call_text(name, each) for each in made)
    return thinking + content + calls + model_family.prompt.stop_tokens[0]


def parsed_answer(
    *made: tuple[str, dict[str, str]], thought: str = "", content: str = ""
) -> Answer:
    """Return the answer that a correct parser reads from it."""
    calls = tuple(
        ToolCall(name, json.dumps(values), f"call-{number}")
        for number, (name, values) in enumerate(made)
    )
    return answer(content, reasoning=thought, tool_calls=calls)


def faults_of(name: str, text: str, reply: Answer, **fields: Any) -> list[str]:
    answered = exchange(reply, raw=text, tools="auto", **fields)
    return [*tokens.texts(answered, family(name)), *tokens.calls(answered, family(name))]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ((), {"thought": "Hm.", "content": "It is cold."}),
        ((), {"thought": "日本語で。", "content": "東京は雨です ☔。"}),
        ((WEATHER,), {"thought": "I need the weather."}),
        ((WEATHER,), {"thought": "I need it.", "content": "Let me see."}),
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
    assert (
        faults_of(name, raw(name, *made, **words), parsed_answer(*made, **words), thinking="on")
        == []
    )


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek", "glm", "gemma"])
def test_an_answer_without_thinking_is_all_content(name: str) -> None:
    right = parsed_answer(content="It is cold.")
    assert faults_of(name, raw(name, content="It is cold."), right, thinking="off") == []
    moved = replace(right, content="", reasoning="It is cold.")
    faults = faults_of(name, raw(name, content="It is cold."), moved, thinking="off")
    assert [text.partition(" is ")[0] for text in faults] == ["reasoning", "content"]


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek", "glm", "gemma"])
def test_unrequested_thinking_in_content_is_a_fault(name: str) -> None:
    """A detokeniser drops the tag that ends it: the user sees both run into each other."""
    text = raw(name, thought="They ask for it.", content="It is cold.")
    leaked = parsed_answer(content="They ask for it.\n\n\nIt is cold.")
    faults = faults_of(name, text, leaked, thinking="off")
    assert [fault.partition(" is ")[0] for fault in faults] == ["reasoning", "content"]


THOUGHT = {"thought": "They ask for it.", "content": "It is cold."}


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
def test_lost_or_misplaced_text_is_a_fault(
    name: str, changes: dict[str, str], fields: list[str]
) -> None:
    reply = replace(parsed_answer(**THOUGHT), **changes)  # type: ignore[arg-type]
    faults = faults_of(name, raw(name, **THOUGHT), reply, thinking="on")
    assert [fault.partition(" is ")[0] for fault in faults] == fields
    assert all("and the tokens contain" in fault for fault in faults)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("made", "parsed", "sentence"),
    [
        ((WEATHER, OTHER), (OTHER,), "1 calls came, and the tokens contain 2: "),
        ((TIME,), (), "0 calls came, and the tokens contain 1: "),
        ((WEATHER,), (WEATHER, WEATHER), "2 calls came, and the tokens contain 1: "),
        ((WEATHER,), (("getWeather", {"city": "Oslo"}),), "tool_calls[0] contains 'getWeather'"),
        ((WEATHER,), (("get_weather", {"city": "Rome"}),), "tool_calls[0] contains 'Rome', which"),
        ((WEATHER,), (("get_weather", {}),), "the calls lack text of the tokens: 'city Oslo'"),
        ((NOTE,), (("save_note", {"text": NOTE[1]["text"]}),), "the calls lack text of the tokens"),
        ((NOTE,), (("save_note", {**NOTE[1], "text": "He said "}),), "the calls lack text of the "),
        ((NOTE,), (("save_note", {**NOTE[1], "place": "Caf? Zo?"}),), "tool_calls[0] contains 'C"),
        ((WEATHER, NOTE), (NOTE, WEATHER), "tool_calls[0] was written as number 1"),
    ],
    ids=[
        "one of two", "the only one", "made up", "renamed", "another value", "no arguments",
        "one argument", "cut at a quote", "question marks", "in another order",
    ],
)  # fmt: skip
def test_lost_parts_of_a_call_are_faults(
    name: str, made: tuple[Any, ...], parsed: tuple[Any, ...], sentence: str
) -> None:
    faults = faults_of(
        name, raw(name, *made, thought="Hm."), parsed_answer(*parsed, thought="Hm."), thinking="on"
    )
    assert any(fault.startswith(sentence) for fault in faults), faults


@pytest.mark.parametrize("name", FAMILIES)
def test_markup_in_an_argument_is_a_fault(name: str) -> None:
    tools = family(name).tools
    assert tools is not None
    behind = tools.call.partition("ARGUMENTS" if "ARGUMENTS" in tools.call else "VALUE")[2]
    spoilt = ("get_weather", {"city": f"Oslo{behind}"})
    faults = faults_of(
        name, raw(name, WEATHER, thought="Hm."), parsed_answer(spoilt, thought="Hm.")
    )
    assert any(fault.startswith("tool_calls[0] contains 'Oslo") for fault in faults), faults


def test_stopped_and_cut_answers_are_not_judged() -> None:
    text = raw("qwen3.5", **THOUGHT)
    stopped = replace(parsed_answer(), stop_reason="x")
    assert faults_of("qwen3.5", text, stopped, stop_at="x") == []
    called = raw("qwen3.5", WEATHER, thought="Hm.")
    cut = replace(parsed_answer(thought="Hm."), finish_reason="length")
    assert faults_of("qwen3.5", called, cut) == []


def test_an_answer_without_token_ids_is_not_judged() -> None:
    answered = exchange(parsed_answer(), tools="auto")
    assert list(tokens.texts(answered, family("qwen3.5"))) == []
    assert list(tokens.calls(answered, family("qwen3.5"))) == []


def test_a_call_in_a_grammars_form_is_not_judged() -> None:
    forced = 'Hm.\n</think>\n\n[{"name": "get_weather", "parameters": {"city": "Oslo"}}]<|im_end|>'
    assert faults_of("qwen3.5", forced, parsed_answer(WEATHER, thought="Hm.")) == []


def test_a_family_without_tools_loses_no_call() -> None:
    answered = exchange(parsed_answer(content="Paris."), raw="Paris.<end_of_turn>", thinking="off")
    assert list(tokens.texts(answered, family("gemma/3"))) == []
    assert list(tokens.calls(answered, family("gemma/3"))) == []


@pytest.mark.parametrize(
    ("tools", "finish", "raw_text", "fault"),
    [
        ("required", "length", "[\n\n\n", None),
        ("named", "length", '{"city": "Os', None),
        ("required", "length", "It is cold", "content is '', and the tokens contain 'It is cold'"),
        ("required", "stop", "[\n\n", "content is '', and the tokens contain"),
        ("auto", "length", "[1, 2", "content is '', and the tokens contain '[1, 2'"),
    ],
)
def test_a_forced_call_that_was_cut_is_not_text(
    tools: str, finish: str, raw_text: str, fault: str | None
) -> None:
    reply = answer("", finish_reason=finish)
    asked = exchange(reply, raw=raw_text, tools=tools, thinking="off")
    faults = list(tokens.texts(asked, family("llama/4")))
    assert faults[0].startswith(fault) if fault else faults == []


def test_an_unclosed_call_is_a_call() -> None:
    reading = tokens.read("Hm.</think><tool_call>\n<function=a>", family("qwen3.5"), thinks=True)
    assert (reading.reasoning, reading.content) == ("Hm.", "")
    assert [call.block for call in reading.calls] == ["<tool_call>\n<function=a>"]


@pytest.mark.parametrize(
    ("serve", "flags"),
    [
        ({"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
         "with --reasoning-parser qwen3 and --tool-call-parser hermes:"),
        ({"tool_call_parser": "hermes"}, "with --tool-call-parser hermes:"),
        ({"max_model_len": 8}, "with no parser:"),
        (None, "check the server's"),
    ],
)  # fmt: skip
def test_the_hint_names_the_servers_parsers(serve: dict[str, Any] | None, flags: str) -> None:
    assert flags in tokens.parser_hint(serve)


def test_list_number_and_invalid_arguments_are_read() -> None:
    text = '<tool_call>\n<function=mix>\n<parameter=tags>\n["red", "blue"]\n</parameter>\n'
    text += "<parameter=count>\n2\n</parameter>\n"
    text = f"Hm.</think>{text}</function>\n</tool_call><|im_end|>"

    def faults_with(arguments: str) -> list[str]:
        return faults_of("qwen3.5", text, replace(parsed_answer(thought="Hm."), tool_calls=(
            ToolCall("mix", arguments, "call-1"),
        )))  # fmt: skip

    assert faults_with('{"tags": ["red", "blue"], "count": 2}') == []
    assert faults_with('{"tags": ["red", "green"], "count": 2}') == [
        "tool_calls[0] contains 'green', which the tokens do not",
        "the calls lack text of the tokens: 'blue'",
    ]
    assert (
        faults_with("tags: red")[0] == "tool_calls[0] contains 'tags: red', which the tokens do not"
    )
