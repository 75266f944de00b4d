"""Forces an answer to be a given text, whole and streamed: that text has to arrive unchanged.

`structured_outputs.choice` with one text leaves the model nothing to choose, so that any model
writes the texts that break parsers and gateways (vLLM 0.32.0, vllm/sampling_params.py,
StructuredOutputsParams).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.conversations.walk import AT_A_TIME
from pytest_vllm_gates.outcomes import Case, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat

FILE = data.FOLDER / "chosen_texts.toml"
SHOWN = 200
WIDTH = 24
"""Characters that are shown from the first difference of two texts."""


class ChosenText(toml.Record):
    """A text, and the parts that may change it on its way."""

    name: toml.Name
    breaks: toml.Sentence
    text: str


class ChosenTexts(toml.Record):
    """The file."""

    texts: tuple[ChosenText, ...]


@dataclass(frozen=True)
class ChosenAnswer:
    """The answer to a request that allows one text; `error` is the reason if it is missing."""

    text: str
    case: Case
    answer: Answer | None = None
    error: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the token limit ended it."""
        return self.answer is not None and self.answer.finish_reason == "length"


def ask(chat: Chat, body: Mapping[str, Any], max_tokens: int) -> list[ChosenAnswer]:
    """Request each text, whole and streamed, as the answer to a body's conversation.

    Raises `NotApplicable` if the server refuses all of them.
    """

    def asked(wanted: ChosenAnswer) -> ChosenAnswer:
        send = chat.stream if wanted.case.traits["answer"] == "streamed" else chat.ask
        try:
            return ChosenAnswer(wanted.text, wanted.case, send(wanted.case.request or {}))
        except openai.APIStatusError as error:
            told = f"answered {error.status_code}: {error.message[:SHOWN]}"
            return ChosenAnswer(wanted.text, wanted.case, error=told)
        except openai.APIError as error:  # an event of the stream reports it
            told = f"the stream ends in an error: {error.message[:SHOWN]}"
            return ChosenAnswer(wanted.text, wanted.case, error=told)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = list(pool.map(asked, _wanted({**body, "max_tokens": max_tokens})))
    if all(each.error.startswith("answered 4") for each in answers):
        raise NotApplicable(f"the server refuses structured_outputs.choice: {answers[0].error}")
    return answers


def _wanted(body: Mapping[str, Any]) -> Iterator[ChosenAnswer]:
    for one in toml.load(FILE, ChosenTexts).texts:
        for mode in ("whole", "streamed"):
            traits = {"text": one.name, "answer": mode}
            request = {**body, "structured_outputs": {"choice": [one.text]}}
            yield ChosenAnswer(one.text, Case(f"{one.name}, {mode}", traits, request))


def changed(one: ChosenAnswer) -> Iterator[str]:
    """Yield a sentence if an answer differs from the text that was its only choice.

    An answer that the limit cut is not judged.
    """
    if one.answer is None:
        yield one.error
        return
    text, content = one.text, one.answer.content
    if one.is_cut or content == text:
        return
    if one.answer.tool_calls and not content:
        yield f"the text became a call of {one.answer.tool_calls[0].name!r}"
        return
    pairs = zip(text, content, strict=False)
    at = next((at for at, (was, came) in enumerate(pairs) if was != came), None)
    at = min(len(text), len(content)) if at is None else at
    expected, came = (each[at : at + WIDTH] for each in (text, content))
    yield f"from character {at} on content is {came!r}, and the only choice was {expected!r}"
