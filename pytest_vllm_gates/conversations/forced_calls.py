"""Forces a server to write given tool calls, to check how its parsers read them.

A grammar with one choice (`structured_outputs.choice`) allows no other text, so a parser can be
tested on an awkward call with any model, even one that would not write it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.client import http
from pytest_vllm_gates.conversations.walk import AT_A_TIME, WIDE_TOKENS
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.family_parts import Tools
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint


class HostileText(toml.Record):
    """A text that is awkward inside a tool call's argument."""

    name: str
    text: str
    times: int = 1
    """The number of repetitions: a long text in a short file."""


class HostileTexts(toml.Record):
    """The file."""

    texts: tuple[HostileText, ...]


class TypedCall(toml.Record):
    """Arguments of declared types; both are JSON, because TOML has no null."""

    name: str
    parameters: str
    """The JSON Schema that the tool declares."""
    arguments: str


class TypedCalls(toml.Record):
    """The file."""

    calls: tuple[TypedCall, ...]


@dataclass(frozen=True)
class ForcedReply:
    """The answers to one request that forces a call of one tool."""

    name: str
    arguments: Mapping[str, Any]
    exact: bool
    """Whether the family's format can carry the arguments unchanged."""
    request: Mapping[str, Any]
    whole: Answer
    streamed: Answer
    widened: Answer


NAME = "save_note"
USER_MESSAGE = {"role": "user", "content": "Save this note."}

LEAD_IN = "Noted. "
"""Precedes the call if text may, so that no grammar for calls replaces the choice."""
MORE_TOKENS = 64
FIRST_BIAS = 100
MARKER_BIAS = 55
TEXT_BIAS = 10


@dataclass(frozen=True)
class WantedCall:
    """A call that a server is forced to write."""

    name: str
    call: str
    """As the family writes it."""
    arguments: Mapping[str, Any]
    parameters: Mapping[str, Any]
    """The JSON Schema that the tool declares."""
    exact: bool = True
    """Whether the family's format can carry the arguments unchanged."""


@dataclass
class ForcedReplies:
    """The replies that were written, and the reasons why the others were not."""

    replies: list[ForcedReply] = field(default_factory=list)
    not_written: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """The server's error for each call on which it failed, by the call's name."""


def force(
    chat: Chat, endpoint: Endpoint, family: Family, calls: Sequence[WantedCall]
) -> ForcedReplies:
    """Force every call in a whole answer, a stream and a stream of wide deltas.

    Several requests are sent at a time, those for the longest calls first: the last one to end
    decides the duration.

    Raises `Inconclusive` if the server does not write the calls that the grammar allows.
    """
    forced = ForcedReplies()
    bias = _bias(endpoint, tools_of(family))

    def take(call: WantedCall, sent: _SentCall) -> ForcedReply | str:
        written = _answer(family, call)
        try:
            answer, streamed, widened = (future.result() for future in sent.answers)
            if answer.token_ids and written not in http.detokenize(endpoint, answer.token_ids):
                return "the answer's tokens differ from those that the grammar allows"
            if spelled := _spelled(endpoint, written, answer.token_ids, bias):
                return f"the markers {spelled} were spelled in several tokens, which no model does"
        except openai.InternalServerError as error:
            forced.failed[call.name] = str(error)
            return f"the server failed: {error}"
        except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        body = sent.body.result()
        return ForcedReply(call.name, call.arguments, call.exact, body, answer, streamed, widened)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        longest_first = sorted(calls, key=lambda call: len(call.call), reverse=True)
        bodies = [pool.submit(_body, endpoint, family, call, bias) for call in longest_first]
        sent = {
            call.name: _sent(pool, chat, body)
            for call, body in zip(longest_first, bodies, strict=True)
        }
        for call in calls:
            reply = take(call, sent[call.name])
            if isinstance(reply, str):
                forced.not_written[call.name] = reply
            else:
                forced.replies.append(reply)
    if not forced.replies and not forced.failed:
        raise Inconclusive(
            "the server did not write the text that structured_outputs.choice allows: "
            f"{next(iter(forced.not_written.values()))}"
        )
    return forced


@dataclass(frozen=True)
class _SentCall:
    """The running requests that force one call."""

    body: Future[dict[str, Any]]
    answers: tuple[Future[Answer], ...]
    """The whole answer, the stream and the stream of wide deltas."""


def _sent(pool: ThreadPoolExecutor, chat: Chat, body: Future[dict[str, Any]]) -> _SentCall:
    """Send the three requests of a call; the same pool computes its body."""
    answers = (
        pool.submit(lambda: chat.ask(body.result())),
        pool.submit(lambda: chat.stream(body.result())),
        pool.submit(lambda: chat.stream({**body.result(), "stream_interval": WIDE_TOKENS})),
    )
    return _SentCall(body, answers)


def request(endpoint: Endpoint, family: Family, call: WantedCall) -> dict[str, Any]:
    """Return the request that forces a call."""
    return _body(endpoint, family, call, _bias(endpoint, tools_of(family)))


def tools_of(family: Family) -> Tools:
    """Return a family's format of tool calls.

    Raises `NotApplicable` for a family without tools or one that always thinks.
    """
    if family.tools is None:
        raise NotApplicable(f"{family.name} calls no tools")
    if family.thinks_always:
        raise NotApplicable(f"{family.name} always thinks first, and a grammar begins after that")
    return family.tools


def tool_definition(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool of every forced call."""
    function = {"name": NAME, "description": "Save a text.", "parameters": parameters}
    return {"type": "function", "function": function}


def _answer(family: Family, call: WantedCall) -> str:
    """Return the whole answer with a call."""
    return call.call if tools_of(family).alone else LEAD_IN + call.call


def _body(
    endpoint: Endpoint, family: Family, call: WantedCall, bias: Mapping[str, int]
) -> dict[str, Any]:
    """Return the request whose grammar allows only this call."""
    written = _answer(family, call)
    ids = http.token_ids(endpoint, written)
    body: dict[str, Any] = {
        "messages": [USER_MESSAGE],
        "tools": [tool_definition(call.parameters)],
        "tool_choice": "auto",
        "structured_outputs": {"choice": [written]},
        "logit_bias": {
            **{str(number): TEXT_BIAS for number in ids},
            **bias,
            str(ids[0]): FIRST_BIAS,
        },
        "max_tokens": len(ids) + MORE_TOKENS,
        "return_token_ids": True,
    }
    if kwargs := family.thinking_kwargs("off"):
        body["chat_template_kwargs"] = kwargs
    return body


def _bias(endpoint: Endpoint, tools: Tools) -> dict[str, int]:
    """Return the logit bias for markers that are one token each.

    The grammar allows a marker as one token or as several, and a parser that reads ids correctly
    ignores the latter. The same applies to words, which would take more tokens than needed.
    """
    ids = [http.token_ids(endpoint, marker.strip()) for marker in tools.markers]
    return {str(marker_ids[0]): MARKER_BIAS for marker_ids in ids if len(marker_ids) == 1}


def _spelled(
    endpoint: Endpoint, expected: str, token_ids: Sequence[int], bias: Mapping[str, int]
) -> list[int]:
    """Return the ids of expected markers that are not among the answer's tokens."""
    markers = {int(text) for text, value in bias.items() if value == MARKER_BIAS}
    due = markers & set(http.token_ids(endpoint, expected))
    return sorted(due - set(token_ids)) if token_ids else []
