"""Requests several choices at once, and answers with log-probabilities, whole and streamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import SAMPLING
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.conversations.checks import choices, events
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.conversations.checks.choices import ScoredChoice

COUNT = 3
TEXTS = ("🦀🦞🦐 red", "🎻🎺🥁 band", "👩‍🚀🧑‍🚀 crew", "🀄🀅 tiles")
"""The texts that a grammar allows. All have characters above U+FFFF, each of several tokens."""
TOKENS = 256
TIMES = 3
"""Maximum requests for a stream with the whole answer's choices in another order."""
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
SEVERAL = {"n": COUNT, "temperature": 1.5, "seed": 20261125}
REFUSED = (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_CONTENT)


@dataclass(frozen=True)
class ChoicesAnswer:
    """The choices of one request, whole and streamed."""

    name: str
    request: Mapping[str, Any]
    whole: tuple[ScoredChoice, ...]
    streamed: tuple[ScoredChoice, ...]
    chunks: tuple[dict[str, Any], ...]
    texts: tuple[str, ...] = ()
    """All texts that a grammar allows; empty without a grammar."""
    requests: int = 2


def ask(
    endpoint: Endpoint, body: Mapping[str, Any], max_tokens: int, *, shaped: bool = True
) -> list[ChoicesAnswer]:
    """Send a chat request for one greedy choice, and for several that a grammar shapes.

    Not `shaped` for a model that always thinks: a grammar begins after the thinking, if ever.
    Raises `NotApplicable` if the server refuses them.
    """
    scored = {
        **SAMPLING, **body, "logprobs": True, "top_logprobs": 2, "return_token_ids": True,
        "max_tokens": min(TOKENS, max_tokens),
    }  # fmt: skip
    one = _asked(endpoint, "one choice", scored)
    if not shaped:
        return [one]
    several = {**scored, **SEVERAL, "structured_outputs": {"choice": list(TEXTS)}}
    return [one, _asked(endpoint, f"{COUNT} choices", several, TEXTS)]


def _asked(
    endpoint: Endpoint, name: str, request: Mapping[str, Any], texts: tuple[str, ...] = ()
) -> ChoicesAnswer:
    reply = http.post(endpoint, http.CHAT, request)
    if reply.status_code in REFUSED:
        raise NotApplicable(f"the server refuses {name} with logprobs: {reply.text[:200]}")
    with reading("the answer"):
        whole = choices.of_whole(reply.raise_for_status().json())
    for attempt in range(1, TIMES + 1):  # noqa: B007 - counted
        chunks = events.chunks(http.recorded(endpoint, {**request, **STREAMED}))
        with reading("the stream"):
            streamed = choices.of_stream(chunks)
        if not [*choices.swapped(whole, streamed)]:
            break
    return ChoicesAnswer(
        name, request, tuple(whole), tuple(streamed), tuple(chunks), texts, 1 + attempt
    )
