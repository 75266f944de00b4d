"""Random conversations in shapes that every family accepts (hypothesis strategies)."""

from __future__ import annotations

import functools
import json
import tempfile
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, configuration, given, settings, strategies as st

from pytest_vllm_gates.goldens import Refused, disagreement, prefix_lost
from pytest_vllm_gates.prompts import meaning
from pytest_vllm_gates.prompts.types import OverLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer
    from pytest_vllm_gates.prompts.served import Served

MOST_TURNS = 3
MOST_CHARACTERS = 40
PLAIN = "word"
AWKWARD = (
    "", " ", "\n", "\r\n", "\t", "{{ x }}", "{% if %}", "<b>&amp;</b>", "```", "\\n", '"', "'",
    "\u0000",
    "e\u0301", "👩‍🚀", "مرحبا", "日本語", "\u200b", "\ufeff", "None", "null", "[INST]",
)  # fmt: skip
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}


def explore(check: Callable[..., None], examples: int, *strategies: st.SearchStrategy[Any]) -> None:
    """Run `check` on so many examples, the same ones every time; raises as `check` does.

    There is not a time limit, and nothing is written to disk: hypothesis would create a
    `.hypothesis` folder in the user's project. After an endless rendering no other is tried:
    the search for a smaller example would wait for each of them.
    """
    endless: list[OverLimit] = []

    @functools.wraps(check)
    def run(*drawn: Any, **named: Any) -> None:
        if not endless:
            try:
                check(*drawn, **named)
            except OverLimit as error:
                endless.append(error)

    bounded = settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    before = getattr(configuration, "__hypothesis_home_directory", None)
    with tempfile.TemporaryDirectory() as home:
        configuration.set_hypothesis_home_dir(home)
        try:
            bounded(given(*strategies)(run))()
        finally:
            configuration.set_hypothesis_home_dir(before)
    if endless:
        raise endless[0]


def first_wrong(
    check: Callable[..., str | None],
    known: Callable[[str], bool],
    examples: int,
    *strategies: st.SearchStrategy[Any],
) -> str | None:
    """Return the fault that `check` finds in the smallest failing example.

    `known` faults count only if nothing else is wrong.
    """
    of_known: list[str] = []

    @functools.wraps(check)  # hypothesis reads its signature
    def judge(*drawn: Any, **named: Any) -> None:
        wrong = check(*drawn, **named)
        if wrong and known(wrong):
            of_known.append(wrong)
        elif wrong:
            raise _Wrong(wrong)

    try:
        explore(judge, examples, *strategies)
    except _Wrong as error:
        return str(error)
    return next(iter(of_known), None)


class _Wrong(Exception):  # noqa: N818 - a finding, on its way through hypothesis
    """An example has a fault; the text describes it."""


@functools.cache
def texts() -> st.SearchStrategy[str]:
    """Ordinary text with awkward pieces; without lone surrogates, which JSON cannot represent."""
    plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=MOST_CHARACTERS)
    return st.lists(st.one_of(plain, st.sampled_from(AWKWARD)), max_size=3).map("".join)


@st.composite
def requests(draw: st.DrawFn, family: Family) -> dict[str, Any]:
    """Draw a chat request: perhaps a system message, turns by turns, a question at the end."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(texts())})
    uses_tools = family.tools is not None and draw(st.booleans())
    for number in range(draw(st.integers(0, MOST_TURNS))):
        messages.append({"role": "user", "content": draw(texts())})
        if uses_tools and draw(st.booleans()):
            messages += draw(_tool_turns(number))
        messages.append({"role": "assistant", "content": draw(texts())})
    messages.append({"role": "user", "content": draw(texts())})
    body: dict[str, Any] = {"messages": messages}
    if uses_tools:
        body["tools"] = [TOOL]
        thinking = family.thinking
        if thinking and not thinking.with_tools:
            body["chat_template_kwargs"] = family.thinking_kwargs("off")
    return body


def rendered_otherwise(
    body: dict[str, Any],
    reference: ReferenceRenderer,
    served: Callable[[dict[str, Any]], Served],
) -> str | None:
    """Return how a server's prompt differs from the reference, or why a refusal is wrong."""
    expected = reference.outcome(body)
    if isinstance(expected, Refused):
        return meaning.wrong_refusal(body, expected, reference.outcome(with_plain_texts(body)))
    wrong = disagreement(expected, served(body))
    return wrong and f"{wrong}\nin {body}"


def prefix_changed(body: dict[str, Any], text: str, reference: ReferenceRenderer) -> str | None:
    """Return how two more turns of `text` change the tokens before them, or None."""
    body |= {"add_generation_prompt": False}
    added = [{"role": "assistant", "content": text}, {"role": "user", "content": text}]
    before = reference.outcome(body)
    after = reference.outcome({**body, "messages": body["messages"] + added})
    lost = prefix_lost(before, after)
    return lost and f"{lost}\nin {body} and two turns of {text!r} more"


def with_plain_texts(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request of the same shape with the plainest texts."""
    messages = []
    for message in body["messages"]:
        plain = {**message, "content": None if message["content"] is None else PLAIN}
        for call in plain.get("tool_calls", ()):
            arguments = json.dumps({"what": PLAIN})
            plain["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": arguments}}
            ]
        messages.append(plain)
    return {**body, "messages": messages}


@st.composite
def _tool_turns(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "look_up", "arguments": json.dumps({"what": draw(texts())})},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": draw(texts())},
    ]
