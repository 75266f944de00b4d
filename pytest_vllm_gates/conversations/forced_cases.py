"""The forced calls: arguments of all types that tools declare, and texts that are hard to parse.

A format with bare values (`<parameter=days>2</parameter>`) leaves their types to the parser, which
reads them from the tool's schema: the same text is a number, a null or a string.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.catalog.call_form import CallForm
from pytest_vllm_gates.client import http
from pytest_vllm_gates.conversations.forced_calls import (
    NAME,
    USER_MESSAGE,
    ForcedReplies,
    HostileTexts,
    TypedCalls,
    WantedCall,
    force,
    request,
    tool_definition,
    tools_of,
)
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.family_parts import Tools
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint

CALLS = data.FOLDER / "typed_calls.toml"


def typed_calls(chat: Chat, endpoint: Endpoint, family: Family) -> ForcedReplies:
    """Force every call of `typed_calls.toml`; raises as `hostile_calls` does.

    Also raises `NotApplicable` if the served chat template renders none of them.
    """
    tools_of(family)
    calls: list[WantedCall] = []
    unwritten: dict[str, str] = {}
    for typed_call in toml.load(CALLS, TypedCalls).calls:
        parameters, arguments = json.loads(typed_call.parameters), json.loads(typed_call.arguments)
        try:
            call = _call(endpoint, family, parameters, arguments)
        except (httpx.HTTPError, ValueError) as error:
            unwritten[typed_call.name] = f"{type(error).__name__}: {error}"
        else:
            calls.append(WantedCall(typed_call.name, call, arguments, parameters))
    if not calls:
        raise NotApplicable(f"no call is rendered: {next(iter(unwritten.values()))}")
    forced = force(chat, endpoint, family, calls)
    forced.not_written |= unwritten
    return forced


def _call(
    endpoint: Endpoint, family: Family, parameters: Mapping[str, Any], arguments: Mapping[str, Any]
) -> str:
    """Return a call in the family's format: in JSON, or rendered by the served template.

    Raises `ValueError` if the template renders no call, and `httpx.HTTPStatusError` if the server
    refuses to render it.
    """
    form = CallForm(tools_of(family))
    if written := form.written(NAME, arguments):
        return written
    text = json.dumps(arguments, ensure_ascii=False)
    tool_call = {"id": "call-1", "type": "function", "function": {"name": NAME, "arguments": text}}
    body: dict[str, Any] = {
        "messages": [USER_MESSAGE, {"role": "assistant", "content": "", "tool_calls": [tool_call]}],
        "tools": [tool_definition(parameters)],
        "add_generation_prompt": False,
    }
    if kwargs := family.thinking_kwargs("off"):
        body["chat_template_kwargs"] = kwargs
    prompt = http.detokenize(endpoint, http.tokenize(endpoint, body))
    call, end = form.tools.call, form.closing
    opening = call.partition("NAME")[0].strip()
    begun, ended = prompt.rfind(f"{opening}{NAME}"), prompt.rfind(end)
    if not 0 <= begun < ended:
        raise ValueError(f"the chat template renders no call between {opening!r} and {end!r}")
    leading = call[: len(call) - len(call.lstrip())]
    return leading + prompt[begun : ended + len(end)]


TEXTS = data.FOLDER / "hostile.toml"
TEXT_AFTER, AFTER = "text-after", "\nThat is all."
"""A call with text after it, and that text."""
LONG_WORD = " lighthouse"
LONG_WORDS = 200
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def hostile_calls(chat: Chat, endpoint: Endpoint, family: Family) -> ForcedReplies:
    """Force a call for every text of `hostile.toml`; raises as `force` does.

    Raises `NotApplicable` for a family without tools or one that always thinks.
    """
    tools = tools_of(family)
    texts = {
        text.name: _with_markers(text.text, family) * text.times
        for text in toml.load(TEXTS, HostileTexts).texts
    }
    calls = [_forced_call(tools, *pair) for pair in texts.items()]
    before = _forced_call(tools, TEXT_AFTER, "A short note.")
    calls.append(replace(before, call=before.call + AFTER))
    return force(chat, endpoint, family, calls)


def long_call(endpoint: Endpoint, family: Family) -> dict[str, Any]:
    """Return the request for a call with one long argument; raises as `hostile_calls` does."""
    call = _forced_call(tools_of(family), "long", LONG_WORD * LONG_WORDS)
    return request(endpoint, family, call)


def _forced_call(tools: Tools, name: str, text: str) -> WantedCall:
    written = CallForm(tools).written(NAME, {"text": text})
    bare = tools.call.replace("NAME", NAME).replace("KEY", "text").replace("VALUE", text)
    exact = written is not None or _carries(tools, text)
    return WantedCall(name, written or bare, {"text": text}, PARAMETERS, exact)


def _carries(tools: Tools, text: str) -> bool:
    """Return whether the format can carry a text between its tags: not if it contains them."""
    return not any(marker.strip() in text for marker in tools.markers)


def _with_markers(text: str, family: Family) -> str:
    form = CallForm(tools_of(family))
    placeholders = {
        "open": form.opening,
        "close": form.closing,
        "stop": family.prompt.stop_tokens[0],
    }
    for placeholder, marker in placeholders.items():
        text = text.replace(f"${{{placeholder}}}", marker)
    return text
