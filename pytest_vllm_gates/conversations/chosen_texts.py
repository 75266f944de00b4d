"""Forces an answer to be a given text, whole and streamed: what comes is that text, as it is.

`structured_outputs.choice` with one text leaves the model nothing to choose, so that any model
writes what parsers and gateways stumble over (vLLM 0.32.0, vllm/sampling_params.py,
StructuredOutputsParams).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.conversations.formats import FormattedAnswer, send_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.chat import Chat

FILE = data.FOLDER / "chosen_texts.toml"
CHOICE = "choice"
WIDTH = 24
"""Characters that are shown from where two texts part."""


class ChosenText(toml.Record):
    """A text, and what changes it on its way."""

    name: toml.Name
    breaks: toml.Sentence
    text: str


class ChosenTexts(toml.Record):
    """The file."""

    texts: tuple[ChosenText, ...]


def ask(chat: Chat, body: Mapping[str, Any], max_tokens: int) -> list[FormattedAnswer]:
    """Request each text, whole and streamed, in place of the answer to a body's conversation.

    Raises `NotApplicable` if the server refuses the first.
    """
    return send_all(chat, list(_wanted(body)), max_tokens)


def _wanted(
    body: Mapping[str, Any],
) -> Iterator[tuple[str, str, dict[str, str], dict[str, Any]]]:
    for one in toml.load(FILE, ChosenTexts).texts:
        for mode in ("whole", "streamed"):
            traits = {"text": one.name, "answer": mode}
            request = {**body, "structured_outputs": {CHOICE: [one.text]}}
            yield f"{one.name}, {mode}", CHOICE, traits, request


def changed(one: FormattedAnswer) -> Iterator[str]:
    """Yield a sentence where an answer is not the text that was its only choice.

    An answer that the limit cut is not judged.
    """
    (text,) = one.request["structured_outputs"][CHOICE]
    content = one.answer.content
    if one.answer.finish_reason == "length" or content == text:
        return
    if one.answer.tool_calls and not content:
        yield f"the text became a call of {one.answer.tool_calls[0].name!r}"
        return
    pairs = zip(text, content, strict=False)
    at = next((at for at, (was, came) in enumerate(pairs) if was != came), None)
    at = min(len(text), len(content)) if at is None else at
    expected, came = (each[at : at + WIDTH] for each in (text, content))
    yield f"from character {at} on content is {came!r}, and the only choice was {expected!r}"
