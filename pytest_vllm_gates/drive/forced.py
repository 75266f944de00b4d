"""Makes a server write a reply of our choice, to see what its parsers make of it.

A grammar with one choice (`structured_outputs.choice`) leaves the model no other text, so what a
parser does with an awkward call can be seen with any model, however small or unwilling.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai

from pytest_vllm_gates.drive import http
from pytest_vllm_gates.drive.walk import AT_A_TIME, WIDE_TOKENS
from pytest_vllm_gates.facts import strict
from pytest_vllm_gates.facts.outcome import Inconclusive, NotApplicable
from pytest_vllm_gates.facts.reply import HostileTexts, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.drive.chat import Chat
    from pytest_vllm_gates.facts.family import Family, Tools
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.reply import Hostile

TEXTS = Path(__file__).parent.parent / "hostile.toml"
# Said before the call, so that no grammar for calls can take the place of the choice.
BEFORE = "Noted. "
MORE_TOKENS = 64
FIRST_BIAS = 100
MARKER_BIAS = 55
TEXT_BIAS = 10
LONG_WORD = " lighthouse"
LONG_WORDS = 200
TOOL = {
    "type": "function",
    "function": {
        "name": "save_note",
        "description": "Save a text.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
}


@dataclass
class Forced:
    """The replies that were written, and why others were not."""

    replies: list[Reply] = field(default_factory=list)
    not_written: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """How the server failed on what it was made to write, by the text's name."""


def hostile_calls(chat: Chat, endpoint: Endpoint, family: Family) -> Forced:
    """Have every hostile text written as the argument of a call, whole, streamed and wide.

    Raises `NotApplicable` for a family without tools or that cannot answer without thinking, and
    `Inconclusive` where the server does not write what it is made to.
    """
    tools = _tools(family)
    texts = strict.load(TEXTS, HostileTexts).texts
    forced = Forced()
    bias = _bias(endpoint, tools)

    def ask(hostile: Hostile) -> Reply | str:
        text = _filled(hostile.text, family) * hostile.times
        written = BEFORE + _call(tools, text)
        try:
            body = _body(endpoint, family, written, bias)
            whole = chat.ask(body)
            streamed = chat.stream(body)
            widened = chat.stream({**body, "stream_interval": WIDE_TOKENS})
            if whole.token_ids and written not in http.detokenize(endpoint, whole.token_ids):
                return "the tokens that came are others than the ones the grammar leaves"
            if spelled := _spelled(endpoint, written, whole.token_ids, bias):
                return f"the markers {spelled} were spelled in several tokens, as no model does"
        except openai.InternalServerError as error:
            forced.failed[hostile.name] = str(error)
            return f"the server failed: {error}"
        except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        exact = "ARGUMENTS" in tools.call or _carries(tools, text)
        return Reply(hostile.name, text, exact, body, whole, streamed, widened)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for hostile, reply in zip(texts, pool.map(ask, texts), strict=True):
            if isinstance(reply, str):
                forced.not_written[hostile.name] = reply
            else:
                forced.replies.append(reply)
    if not forced.replies and not forced.failed:
        raise Inconclusive(
            "the server did not write what structured_outputs.choice leaves it: "
            f"{next(iter(forced.not_written.values()))}"
        )
    return forced


def long_call(endpoint: Endpoint, family: Family) -> dict[str, Any]:
    """Return the request for a call with one long argument; raises as `hostile_calls` does."""
    tools = _tools(family)
    written = BEFORE + _call(tools, LONG_WORD * LONG_WORDS)
    return _body(endpoint, family, written, _bias(endpoint, tools))


def _tools(family: Family) -> Tools:
    if family.tools is None:
        raise NotApplicable(f"{family.name} calls no tools")
    if family.thinking is not None and family.thinking.switch is None:
        raise NotApplicable(f"{family.name} always thinks first, and a grammar begins after that")
    return family.tools


def _body(
    endpoint: Endpoint, family: Family, written: str, bias: Mapping[str, int]
) -> dict[str, Any]:
    """Return the request that leaves the model nothing but `written` to write."""
    ids = http.token_ids(endpoint, written)
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Save this note."}],
        "tools": [TOOL],
        "tool_choice": "auto",
        "structured_outputs": {"choice": [written]},
        "logit_bias": {str(one): TEXT_BIAS for one in ids} | dict(bias),
        "max_tokens": len(ids) + MORE_TOKENS,
        "return_token_ids": True,
    }
    if kwargs := family.thinking_kwargs("off"):
        body["chat_template_kwargs"] = kwargs
    return body


def _bias(endpoint: Endpoint, tools: Tools) -> dict[str, int]:
    """Return what makes the model begin as it is to, and write markers as models do: in one token.

    A grammar leaves it to the model whether a marker is its own token or spelled in several, and a
    parser that reads ids would rightly overlook the second. Likewise for the words of the text,
    which else take many more tokens than they need.
    """
    ids = [http.token_ids(endpoint, marker.strip()) for marker in tools.markers]
    bias = {str(found[0]): MARKER_BIAS for found in ids if len(found) == 1}
    return {**bias, str(http.token_ids(endpoint, BEFORE)[0]): FIRST_BIAS}


def _spelled(
    endpoint: Endpoint, written: str, came: Sequence[int], bias: Mapping[str, int]
) -> list[int]:
    """Return the ids of markers that were to be written and did not come."""
    markers = {int(one) for one, value in bias.items() if value == MARKER_BIAS}
    due = markers & set(http.token_ids(endpoint, written))
    return sorted(due - set(came)) if came else []


def _call(tools: Tools, text: str) -> str:
    """Return a call as the family writes it."""
    call = tools.call.replace("NAME", "save_note")
    if "ARGUMENTS" in call:
        return call.replace("ARGUMENTS", json.dumps({"text": text}, ensure_ascii=False))
    return call.replace("KEY", "text").replace("VALUE", text)


def _carries(tools: Tools, text: str) -> bool:
    """Return whether text between tags comes out again: not where it holds the tags themselves."""
    return not any(marker.strip() in text for marker in tools.markers)


def _filled(text: str, family: Family) -> str:
    call = _tools(family).call.strip()
    opening = call.partition(">")[0] + ">"
    closing = "<" + call.rpartition("<")[2]
    words = {"open": opening, "close": closing, "stop": family.prompt.stop_tokens[0]}
    for word, meant in words.items():
        text = text.replace(f"${{{word}}}", meant)
    return text
