"""A parameter of a completion's prompt is done or refused, and never ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.sampling.prompt_parameters import KEPT, PROMPT, ignored, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.scripted import ServerAnswer

    from pytest_vllm_gates.sampling.prompt_parameters import PromptParameter

CHAT = {"messages": [{"role": "user", "content": "Hello!"}]}
LENGTH = 4


def obeys(_: str, body: dict[str, Any]) -> ServerAnswer:
    """Answer as a server does that knows every parameter but `suffix`, which it refuses."""
    if "suffix" in body or body.get("best_of", 9) < body.get("n", 1):
        return 400, {"error": {"message": "no"}}
    text = " of light." if not body.get("echo") else f"{PROMPT} of light."
    tokens = body["max_tokens"] if body.get("ignore_eos") else LENGTH
    kept = body.get("truncate_prompt_tokens", 9)
    head = {"id": "1", "model": "alias", "created": 0}
    usage = {"prompt_tokens": kept, "completion_tokens": tokens, "total_tokens": kept + tokens}
    reason = "length" if body.get("ignore_eos") else "stop"
    choice = {"index": 0, "finish_reason": reason}
    if body.get("stream"):
        return 200, [
            {**head, "choices": [{**choice, "text": text[:5]}]},
            {**head, "choices": [{**choice, "text": text[5:]}]},
        ]
    choice |= {"message": {"content": text}} if "messages" in body else {"text": text}
    return 200, {**head, "choices": [choice], "usage": usage}


def measured(
    answer: Callable[[str, dict[str, Any]], ServerAnswer] = obeys,
) -> list[PromptParameter]:
    with running(ScriptedServer(answer)) as server:
        return measure(server.endpoint, CHAT)


def dropping(*names: str) -> Callable[[str, dict[str, Any]], ServerAnswer]:
    """Answer as a server does that does not know these fields."""

    def answer(path: str, body: dict[str, Any]) -> ServerAnswer:
        return obeys(path, {key: value for key, value in body.items() if key not in names})

    return answer


def test_a_server_that_does_or_refuses_all_is_right() -> None:
    parameters = measured()
    assert [*ignored(parameters)] == []
    assert {each.name for each in parameters if each.refused} == {"suffix", "best_of"}


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("echo", ["echo: the text begins with ' of light.', not with the prompt"] * 2),
        (
            "suffix",
            ["suffix: the prompt has 9 tokens, as many as without it: it is taken and ignored"],
        ),
        (
            "best_of",
            ["best_of is below n, which the API refuses, and it is answered: it is ignored"],
        ),
        (
            "truncate_prompt_tokens",
            [f"truncate_prompt_tokens {KEPT}: the prompt has 9 tokens"] * 2,
        ),
        ("ignore_eos", ["ignore_eos: expected 28 tokens (length), and 4 came (stop)"] * 2),
    ],
)
def test_a_parameter_that_is_ignored_is_a_fault(name: str, sentences: list[str]) -> None:
    assert [sentence for _, sentence in ignored(measured(dropping(name)))] == sentences


def test_a_prompt_alone_is_not_an_answer() -> None:
    echo = next(each for each in measured() if each.name == "echo")
    plain = next(each for each in measured() if each.name == "plain")
    assert [sentence for _, sentence in ignored([plain, replace(echo, text=PROMPT)])] == [
        "echo: nothing comes after the prompt"
    ]


def test_a_server_that_fails_is_a_fault() -> None:
    def fails(path: str, body: dict[str, Any]) -> ServerAnswer:
        return (500, {"error": "echo"}) if body.get("echo") else obeys(path, body)

    sentences = [sentence for _, sentence in ignored(measured(fails))]
    assert len(sentences) == 2
    assert all(sentence.startswith("the server fails: answered 500: ") for sentence in sentences)
