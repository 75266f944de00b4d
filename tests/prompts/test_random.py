"""Random conversations: the same every time, in shapes a family can have, bounded and clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.prompts.random import (
    PLAIN,
    explore,
    first_wrong,
    requests,
    texts,
    with_plain_texts,
)
from pytest_vllm_gates.prompts.types import Endless

FAMILIES = ("qwen3.5", "gemma/3", "deepseek")
EXAMPLES = 60


def explored(family: str, examples: int = EXAMPLES) -> list[dict[str, Any]]:
    bodies: list[dict[str, Any]] = []

    def keep(body: dict[str, Any]) -> None:
        bodies.append(body)

    explore(keep, examples, requests(families.load(family, Path("/nowhere"))))
    return bodies


def test_the_same_conversations_come_every_time() -> None:
    assert explored("qwen3.5") == explored("qwen3.5")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_requests_fit_the_family(family: str) -> None:
    bodies = explored(family)
    assert len(bodies) <= EXAMPLES
    tools = families.load(family, Path("/nowhere")).tools
    assert any("tools" in body for body in bodies) == (tools is not None)
    for body in bodies:
        json.dumps(body).encode()
        roles = [message["role"] for message in body["messages"]]
        assert roles[-1] == "user"
        assert set(roles) <= {"system", "user", "assistant", "tool"}
        assert "system" not in roles[1:]


def test_plain_texts_keep_the_requests_shape() -> None:
    for body in explored("qwen3.5"):
        before = json.dumps(body)
        plain = with_plain_texts(body)
        assert json.dumps(body) == before
        assert [message["role"] for message in plain["messages"]] == [
            message["role"] for message in body["messages"]
        ]
        contents = {message["content"] for message in plain["messages"]}
        assert contents <= {PLAIN, None}
        for plain_message, message in zip(plain["messages"], body["messages"], strict=True):
            assert [call["id"] for call in plain_message.get("tool_calls", ())] == [
                call["id"] for call in message.get("tool_calls", ())
            ]


def test_a_failed_check_is_raised_for_the_smallest_example() -> None:
    def check(text: str) -> None:
        assert len(text) < 5, f"too long: {text!r}"

    with pytest.raises(AssertionError, match="too long") as caught:
        explore(check, EXAMPLES, texts())
    assert len(str(caught.value).splitlines()[0]) < 40


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    explored("qwen3.5", 5)
    assert list(tmp_path.iterdir()) == []


def test_a_rendering_that_never_ends_is_tried_once() -> None:
    tried = []

    def check(text: str) -> None:
        tried.append(text)
        if text:
            raise Endless(f"busy with {text!r}")

    with pytest.raises(Endless, match="busy with"):
        explore(check, EXAMPLES, texts())
    assert tried[-1] and not any(tried[:-1])


@pytest.mark.parametrize(
    ("known", "expected"),
    [("", "two words"), ("two", "no words"), ("two|no", "two words"), ("no", "two words")],
)
def test_known_defects_hide_no_other_fault(known: str, expected: str) -> None:
    """`no words` is wrong with the smallest example, `two words` with some larger ones."""

    def check(body: dict[str, Any]) -> str | None:
        users = sum(message["role"] == "user" for message in body["messages"])
        return {2: "two words", 3: "no words"}.get(users)

    def is_known(wrong: str) -> bool:
        return wrong.split(maxsplit=1)[0] in known.split("|")

    family = families.load("gemma/3", Path("/nowhere"))
    found = first_wrong(check, is_known, EXAMPLES, requests(family))
    assert found is not None
    if known == "two|no":
        assert found in {"two words", "no words"}
    else:
        assert found == expected


def test_nothing_is_wrong_where_no_example_is() -> None:
    family = families.load("gemma/3", Path("/nowhere"))
    assert first_wrong(lambda _: None, lambda _: True, EXAMPLES, requests(family)) is None
