"""A family's calls are written in its form and found again, between tags and in brackets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.call_form import CallForm

IN_BRACKETS = ("phi", "llama", "llama/4", "mistral")
OTHERS = ("qwen3.5", "glm", "deepseek", "gemma", "kimi", "minimax", "minimax/m3", "nemotron")
WHERE = {"name": 'Café "Zoë"', "at": [46.5, -7.25], "arguments": None}
LUNCH: dict[str, Any] = {"text": "it's ]) and }", "tags": ["a", "b, c"], "place": WHERE, "ok": True}


def form(name: str) -> CallForm:
    """Return the form of a family's calls."""
    tools = families.load(name, Path("/nowhere")).tools
    assert tools is not None
    return CallForm(tools)


def written(name: str, arguments: dict[str, Any], tool: str = "save_note") -> str:
    """Return a call that the form can write."""
    text = form(name).written(tool, arguments)
    assert text is not None
    return text


@pytest.mark.parametrize("name", IN_BRACKETS)
def test_a_call_in_brackets_is_found_whole(name: str) -> None:
    call = written(name, LUNCH)
    rest, found = form(name).split(f"Noted [1]. {call} Done {{2}}.")
    assert (rest, [each.block for each in found]) == ("Noted [1].  Done {2}.", [call])
    assert form(name).count(found) == 1


@pytest.mark.parametrize("name", IN_BRACKETS)
def test_answer_that_looks_like_a_call_is_not_a_call(name: str) -> None:
    text = 'A list of functools: ["a", (1)], {"name": "Ada", "fields": []} and [1](2).'
    assert form(name).split(text) == (text, ())


@pytest.mark.parametrize("name", IN_BRACKETS)
def test_a_cut_call_goes_to_the_end(name: str) -> None:
    call = written(name, LUNCH)
    rest, found = form(name).split("So: " + call[:-4])
    assert (rest, [each.block for each in found]) == ("So: ", [call[:-4]])


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_calls_beside_each_other_are_counted(name: str) -> None:
    both = written(name, LUNCH) + written(name, {"city": "Lima"}, "get_weather")
    assert form(name).count(form(name).split(both)[1]) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama/4", '[get_weather(city="Rome, Italy"), get_weather(city="Lima"), get_time()]'),
        (
            "phi",
            'functools[{"name": "get_weather", "arguments": {"city": "Rome, Italy"}}, '
            '{"name": "get_weather", "arguments": {}}, {"name": "get_time", "arguments": {}}]',
        ),
    ],
)
def test_calls_in_one_list_are_counted(name: str, text: str) -> None:
    rest, found = form(name).split(text)
    assert (rest, form(name).count(found)) == ("", 3)


def test_the_form_is_taken_from_a_call_and_not_from_its_arguments() -> None:
    call = written("phi", {"name": "Ada", "arguments": "none"})
    bare = form("phi").bare(form("phi").split(call)[1])
    assert bare.count('"name": "Ada"') == 1
    assert bare.count('"arguments": "none"') == 1
    assert "functools" not in bare


def test_json_between_tags_is_one_call_whatever_its_arguments_hold() -> None:
    """Arguments of `{"place": {"name": …}}` were counted as a second call."""
    both = written("qwen3-vl", {"place": WHERE}) + "\n" + written("qwen3-vl", {"name": "Ada"})
    found = form("qwen3-vl").split(both)[1]
    assert form("qwen3-vl").count(found) == 2
    bare = form("qwen3-vl").bare(found)
    assert bare.count('{"name": "Caf') == bare.count('{"name": "Ada"') == 1
    assert "tool_call" not in bare


def test_blanks_in_a_call_may_differ() -> None:
    text = 'functools[{"name":"get_time","arguments":{}}]'
    rest, found = form("phi").split(text)
    assert (rest, form("phi").bare(found).split()) == ("", ["get_time", "{}}"])


def test_python_writes_python() -> None:
    arguments = {"a": None, "b": [True, 1.5, {"c": 'x"\n'}]}
    call = '[save_note(a=None, b=[True, 1.5, {"c": "x\\"\\n"}])]'
    assert written("llama/4", arguments) == call


def test_bare_values_are_written_by_a_template_alone() -> None:
    assert form("qwen3.5").written("save_note", {"text": "a"}) is None


@pytest.mark.parametrize("name", [*IN_BRACKETS, *OTHERS])
def test_opening_and_closing_of_calls(name: str) -> None:
    call = form(name).call
    assert call.startswith(form(name).opening)
    if "ARGUMENTS" in call:
        call = call.replace("ARGUMENTS", json.dumps({}))
    assert call.endswith(form(name).closing)
