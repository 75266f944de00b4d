"""Parameters are requested one by one, and answers are joined choice by choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai
import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable
from pytest_vllm_gates.sampling import effects as sampling_effects
from pytest_vllm_gates.sampling.effects import missing_effects

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.scripted import ServerAnswer

    from pytest_vllm_gates.sampling.effects import Effect

WORDS = ["It", " is", " cold", ".", " today", ", in", "deed", "1", "2", "3", "4", "5"]
GREEDY = tuple(range(len(WORDS)))
PROMPT = [100, 101]
CHAT = {"messages": [{"role": "user", "content": "How is it?"}]}


def engine(body: dict[str, Any]) -> tuple[int, ...]:
    """Return the tokens of a correct engine, by fields that are sent only once."""
    barred: set[int] = set()
    for word in body.get("bad_words", ()):
        barred |= {at for at, text in enumerate(WORDS) if text.strip() == word}
    ids = [token for token in GREEDY if token not in barred]
    for at, number in enumerate(ids):
        if WORDS[number].strip() in body.get("stop", ()):
            return tuple(ids[: at + 1])
    return tuple(ids)


def choice(body: dict[str, Any], ids: tuple[int, ...], index: int) -> dict[str, Any]:
    scored = None
    if "logprobs" in body:
        scored = {
            "token_logprobs": [-0.1] * len(ids),
            "top_logprobs": [{"a": -0.1, "b": -2.0}] * len(ids),
            "tokens": [WORDS[number] for number in ids],
            "text_offset": [0] * len(ids),
        }
    text = "".join(WORDS[number] for number in ids)
    return {"index": index, "text": text, "token_ids": list(ids), "logprobs": scored}


def obeys(path: str, body: dict[str, Any]) -> ServerAnswer:
    if path == "/detokenize":
        return 200, {"prompt": "".join(WORDS[token] for token in body["tokens"])}
    if path == "/tokenize" and "messages" in body:
        return 200, {"tokens": PROMPT}
    if path == "/tokenize":
        return 200, {"tokens": [at for at, text in enumerate(WORDS) if text == body["prompt"]]}
    head = {"id": "1", "object": "text_completion", "created": 0, "model": "alias"}
    ids = engine(body)
    end = "stop" if body.get("stop") else "length"
    each = range(body.get("n", 1))
    if not body.get("stream"):
        choices = [choice(body, ids, index) | {"finish_reason": end} for index in each]
        return 200, {**head, "choices": choices}
    events = [
        {**head, "choices": [choice(body, (number,), index) | {"finish_reason": None}]}
        for number in ids
        for index in each
    ]
    for event in events[-len(each) :]:
        event["choices"][0]["finish_reason"] = end  # type: ignore[index]
    return 200, events


def effects_of(answer: Callable[[str, Any], ServerAnswer] = obeys) -> list[Effect]:
    with running(ScriptedServer(answer)) as server:
        url = server.endpoint.base_url
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            return sampling_effects.measure_effects(client, server.endpoint, CHAT)


def faults(effects: list[Effect]) -> dict[str, list[str]]:
    return {
        effect.name: sentences for effect in effects if (sentences := [*missing_effects(effect)])
    }


def test_an_engine_with_every_effect_has_no_fault() -> None:
    effects = effects_of()
    assert faults(effects) == {}
    assert {effect.parameter for effect in effects} == {
        "logprobs", "n", "bad_words", "include_stop_str_in_output",
    }  # fmt: skip
    assert {effect.parameter for effect in effects if effect.mode == "streamed"} == {
        "logprobs",
        "n",
    }
    assert all(effect.request["prompt"] == PROMPT for effect in effects)


def test_a_stream_has_the_choices_of_a_whole_answer() -> None:
    by_name = {effect.name: effect for effect in effects_of()}
    assert by_name["logprobs, streamed"].choices == by_name["logprobs, whole"].choices


IGNORED = {
    "bad_words": "bad_words forbids token 2, and it came",
    "n": "2 choices were requested (n), and 1 came",
    "logprobs": "12 tokens came, log-probabilities of 0, and",
}


@pytest.mark.parametrize("parameter", IGNORED)
def test_a_dropped_parameter_is_a_fault(parameter: str) -> None:
    def drops(path: str, body: dict[str, Any]) -> ServerAnswer:
        return obeys(path, {name: value for name, value in body.items() if name != parameter})

    faults_by_name = faults(effects_of(drops))
    assert {name.partition(",")[0] for name in faults_by_name} >= {parameter}
    (first, *_) = faults_by_name.values()
    assert first[0].startswith(IGNORED[parameter])


def test_a_refused_parameter_is_not_a_fault() -> None:
    def refuses(path: str, body: dict[str, Any]) -> ServerAnswer:
        if "bad_words" in body:
            return 400, {"error": {"message": "bad_words is not supported with speculation"}}
        return obeys(path, body)

    effects = effects_of(refuses)
    assert faults(effects) == {}
    (refused,) = [effect for effect in effects if effect.refused]
    assert (refused.parameter, "with speculation" in refused.refused) == ("bad_words", True)


def test_a_parameter_that_breaks_the_server_is_a_fault() -> None:
    def dies(path: str, body: dict[str, Any]) -> ServerAnswer:
        if "bad_words" in body:
            return 500, {"error": {"message": "EngineCore"}}
        return obeys(path, body)

    (sentence,) = faults(effects_of(dies))["bad_words, whole"]
    assert sentence.startswith("the server fails: InternalServerError: ")


def test_a_server_that_fails_at_once_is_a_fault() -> None:
    def dead(path: str, body: dict[str, Any]) -> ServerAnswer:
        return obeys(path, body) if path == "/tokenize" else (500, {"error": {"message": "dead"}})

    (only,) = effects_of(dead)
    assert faults([only])["none, whole"][0].startswith("the server fails: InternalServerError")


def test_a_server_without_completions_is_not_applicable() -> None:
    def chats_only(path: str, body: dict[str, Any]) -> ServerAnswer:
        return obeys(path, body) if path == "/tokenize" else (404, {"detail": "Not Found"})

    with pytest.raises(NotApplicable, match="answers no completion: NotFoundError"):
        effects_of(chats_only)


@pytest.mark.parametrize("answer", [(404, {"detail": "Not Found"}), (200, {}), (200, "no")])
def test_a_server_without_tokenize_is_not_applicable(answer: ServerAnswer) -> None:
    with pytest.raises(NotApplicable, match=r"reports no chat's prompt \(/tokenize\)"):
        effects_of(lambda *_: answer)


def test_a_server_without_token_ids_is_inconclusive() -> None:
    def silent(path: str, body: dict[str, Any]) -> ServerAnswer:
        status, content = obeys(path, body)
        for choice in content.get("choices", ()):
            del choice["token_ids"]
        return status, content

    with pytest.raises(Inconclusive, match="reports no tokens"):
        effects_of(silent)


def test_a_server_error_on_tokenize_is_raised() -> None:
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        effects_of(lambda *_: (500, {"error": {"message": "EngineCore"}}))


def test_a_place_without_alternatives_is_a_fault() -> None:
    def untold(path: str, body: dict[str, Any]) -> ServerAnswer:
        status, content = obeys(path, body)
        if body.get("logprobs") == 2 and not body.get("stream"):
            content["choices"][0]["logprobs"]["top_logprobs"][3] = {}
        return status, content

    faults_by_name = faults(effects_of(untold))
    assert faults_by_name == {
        "logprobs, whole": ["12 tokens came, log-probabilities of 12, and the best at 11 places"]
    }


def test_without_a_word_word_parameters_are_left_out() -> None:
    def numbers(path: str, body: dict[str, Any]) -> ServerAnswer:
        if path == "/detokenize":
            return 200, {"prompt": "7"}
        return obeys(path, body)

    assert {effect.parameter for effect in effects_of(numbers)}.isdisjoint(
        {"bad_words", "include_stop_str_in_output"}
    )
