"""Requests formats that no model follows by chance, beside thinking and tools, whole and streamed.

Each allows one text, or a few, without a choice of white space: another answer shows that the
server ignored the format.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai

from pytest_vllm_gates.conversations.walk import AT_A_TIME
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat

WORDS = "vermilion ultramarine"
SCHEMA = {"enum": [WORDS]}
REGEX = "vermilion [0-9]{3}"
FORMATS: dict[str, dict[str, Any]] = {
    "enum": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "color", "schema": SCHEMA, "strict": True},
        }
    },
    "regex": {"structured_outputs": {"regex": REGEX}},
}
JSON_OBJECT = {"response_format": {"type": "json_object"}}
PLAIN, WITH_TOOLS, JSON = "plain", "tool-none-needed", "json"


@dataclass(frozen=True)
class FormattedAnswer:
    """The answer to one request for a format."""

    name: str
    format: str
    """`enum`, `regex` or `object`."""
    traits: Mapping[str, str]
    request: Mapping[str, Any]
    answer: Answer


def ask(
    chat: Chat, family: Family, conversations: Mapping[str, Conversation], max_tokens: int
) -> list[FormattedAnswer]:
    """Send a request for each format, with thinking on and off, with tools and without.

    Raises `NotApplicable` if the server refuses a format.
    """
    wanted = list(_wanted(family, conversations))

    def asked(request: tuple[str, str, dict[str, str], dict[str, Any]]) -> FormattedAnswer:
        name, kind, traits, body = request
        send = chat.stream if traits["answer"] == "streamed" else chat.ask
        body |= {"max_tokens": max_tokens}
        return FormattedAnswer(name, kind, traits, body, send(body))

    try:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(asked, wanted))
    except openai.BadRequestError as error:
        raise NotApplicable(f"the server refuses a format: {error.message}") from error


def _wanted(
    family: Family, conversations: Mapping[str, Conversation]
) -> Iterator[tuple[str, str, dict[str, str], dict[str, Any]]]:
    bodies = [(kind, PLAIN, body) for kind, body in FORMATS.items()]
    bodies += [("enum", WITH_TOOLS, FORMATS["enum"]), ("object", JSON, JSON_OBJECT)]
    for kind, name, body in bodies:
        for thinking in ("on", "off", "unset"):
            conversation = conversations[name].model_copy(update={"thinking": thinking})
            switched = family.thinking is not None and family.thinking.switch is not None
            if conversation.why_not(family) or (thinking == "unset") == switched:
                continue
            tools = "auto" if conversation.tools else "undeclared"
            traits = {"thinking": thinking, "tools": tools, "format": kind}
            for mode in ("whole", "streamed"):
                case = {**traits, "answer": mode}
                case_name = ", ".join(f"{key} {value}" for key, value in case.items())
                yield case_name, kind, case, conversation.body(family) | body
