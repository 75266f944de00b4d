"""Each fault of a server with features turns its check red, and no other one of the gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.conversation import load_all
from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.features import battery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_vllm_gates.features.battery import Answers

NOWHERE = Path("/nonexistent")
VALID = {
    "regex": "abc-123",
    "object": '{"name": "ada", "born": 1815}',
    "choice": "the first of these answers",
}
ANSWERS, VALIDITY = "answers_as_without_them", "structured_output_is_valid"


class Healthy:
    """Answers each request in its own words, and structured output in its format."""

    def ask(self, body: Mapping[str, Any]) -> Completion:
        text = str(body["messages"][-1]["content"])[-60:]
        reasoning = ""
        calls: tuple[tuple[str, str], ...] = ()
        if structured := body.get("structured_outputs"):
            kind = next(name for name, one in battery.FORMATS.items() if one == structured)
            text = VALID[kind]
        elif body.get("tools"):
            text, calls = "", (("get_weather", '{"city": "Paris"}'),)
        if (body.get("chat_template_kwargs") or {}).get("enable_thinking"):
            reasoning = "Let me think."
        shown = f"{reasoning}{text}{calls}"
        return Completion(
            reasoning,
            text,
            "tool_calls" if calls else "stop",
            calls,
            tuple(map(ord, shown)),
            request=body,
        )

    def together(self, bodies: Sequence[Mapping[str, Any]]) -> list[Completion]:
        return [self.ask(body) for body in bodies]


def answers() -> Answers:
    family = families.load("qwen3.5", NOWHERE)
    bodies = battery.requests(family, load_all(NOWHERE), 64)
    return battery.ask(Healthy(), bodies, PRESSING)  # type: ignore[arg-type]


def wrote(answer: Completion, content: str) -> Completion:
    return replace(answer, content=content, token_ids=tuple(map(ord, content)))


def of_another(name: str, other: str) -> Callable[[Answers], None]:
    def spoil(given: Answers) -> None:
        given.by_request[name] = replace(
            given.by_request[other], request=given.by_request[name].request
        )

    return spoil


def changed(name: str, change: Callable[[Completion], Completion]) -> Callable[[Answers], None]:
    def spoil(given: Answers) -> None:
        given.by_request[name] = change(given.by_request[name])

    return spoil


def everywhere(part: str, change: Callable[[Completion], Completion]) -> Callable[[Answers], None]:
    def spoil(given: Answers) -> None:
        for name, answer in given.by_request.items():
            if part in name:
                given.by_request[name] = change(answer)

    return spoil


PRESSING = {
    f"pressed {number}": {"messages": [{"content": f"Note {number}."}]} for number in range(1, 9)
}
QUESTION, SHARED, REGEX = "question 3", "shared beginning", "format regex"
FAULTS: dict[str, tuple[Callable[[Answers], None], set[str]]] = {
    "a draft with a wrong last token is accepted": (
        changed(f"{QUESTION}, alone", lambda one: wrote(one, f"{one.content[:-1]}~")), {ANSWERS}
    ),
    "a draft beyond the end is accepted": (
        changed(f"{QUESTION}, again", lambda one: wrote(one, f"{one.content} And")), {ANSWERS}
    ),
    "drafts are lost in a batch": (
        changed(f"{QUESTION}, among others", lambda one: wrote(one, one.content[4:])), {ANSWERS}
    ),
    "the token after an accepted draft comes twice": (
        changed(f"{QUESTION}, alone", lambda one: wrote(one, one.content[:5] + one.content[4:])),
        {ANSWERS},
    ),
    "a cached beginning is taken for the whole prompt": (
        of_another(f"{SHARED} 2, alone", f"{SHARED} 1, alone"), {ANSWERS}
    ),
    "a known prompt is answered as another one": (
        of_another(f"{QUESTION}, again", "question 4, again"), {ANSWERS}
    ),
    "a cache that is loaded again is shifted by a block": (
        changed(f"{SHARED} 1, again", lambda one: wrote(one, one.content[16:])), {ANSWERS}
    ),
    "a cache that is loaded again is empty": (
        changed(f"{SHARED} 1, again", lambda one: wrote(one, "I do not know.")), {ANSWERS}
    ),
    "a request that was put off reads a neighbour's block": (
        of_another("pressed 3", "pressed 2"), {ANSWERS}
    ),
    "a preempted request repeats a part": (
        changed("pressed 5", lambda one: wrote(one, one.content + one.content)), {ANSWERS}
    ),
    "a beginning that was evicted is taken from the cache": (
        of_another("question 2, afterwards", "pressed 2"), {ANSWERS}
    ),
    "two requests of a batch are swapped": (
        of_another("question 1, among others", "question 2, among others"), {ANSWERS}
    ),
    "a prompt read in steps loses its end": (
        everywhere(SHARED, lambda one: wrote(one, one.content[:10])), {ANSWERS}
    ),
    "a delta of several tokens loses one": (
        changed(f"{QUESTION}, among others", lambda one: wrote(one, one.content[:-1])), {ANSWERS}
    ),
    "a large delta loses a call's arguments": (
        changed(
            "conversation tool-one, among others",
            lambda one: replace(one, calls=(("get_weather", "{}"),)),
        ),
        {ANSWERS},
    ),
    "a call is another one beside speculation": (
        changed(
            "conversation tool-one, alone",
            lambda one: replace(one, calls=(("get_time", '{"city": "Paris"}'),)),
        ),
        {ANSWERS},
    ),
    "the finish of a call is stop": (
        changed("conversation tool-one, again", lambda one: replace(one, finish_reason="stop")),
        {ANSWERS},
    ),
    "thinking is shown as content": (
        changed(
            "conversation thinking-on, alone",
            lambda one: replace(one, reasoning="", content=one.reasoning + one.content),
        ),
        {ANSWERS},
    ),
    "an answer is cut by a smaller limit": (
        changed(f"{QUESTION}, alone", lambda one: replace(one, finish_reason="length")), {ANSWERS}
    ),
    "a request is refused": (
        changed(f"{QUESTION}, again", lambda one: Completion(error="500", request=one.request)),
        {ANSWERS},
    ),
    "the grammar is lost beside speculation": (
        everywhere(REGEX, lambda one: wrote(one, "The tide.")), {ANSWERS, VALIDITY}
    ),
    "the grammar is lost with sixteen streams": (
        changed(f"{REGEX}, stream 1 of 16", lambda one: wrote(one, "abc-12")), {ANSWERS, VALIDITY}
    ),
    "the grammar is another stream's": (
        of_another(f"{REGEX}, stream 1 of 4", "format object, stream 3 of 4"), {ANSWERS, VALIDITY}
    ),
    "the grammar is lost after thinking": (
        changed("format choice after thinking, alone", lambda one: wrote(one, "the first")),
        {ANSWERS, VALIDITY},
    ),
    "a rejected draft stays in the structured output": (
        changed(f"{REGEX}, among others", lambda one: wrote(one, f"{one.content}4")),
        {ANSWERS, VALIDITY},
    ),
}  # fmt: skip


def red(without: Answers, given: Answers) -> set[str]:
    """Return the checks of the gate that fail."""
    different, _, _ = battery.differences(without, given, ["ngram"], invariant=True)
    invalid, _ = battery.invalid(given, ["ngram"])
    return {name for name, found in ((ANSWERS, different), (VALIDITY, invalid)) if found}


def test_a_healthy_server_turns_nothing_red() -> None:
    assert red(answers(), answers()) == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_turns_its_checks_red(fault: str) -> None:
    spoil, checks = FAULTS[fault]
    given = answers()
    spoil(given)
    assert red(answers(), given) == checks


def test_a_format_that_is_lost_with_and_without_features_is_not_valid() -> None:
    both = answers(), answers()
    for given in both:
        everywhere(REGEX, lambda one: wrote(one, "The tide."))(given)
    assert red(*both) == {VALIDITY}
