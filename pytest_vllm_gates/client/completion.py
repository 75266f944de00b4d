"""Requests completions with their tokens and candidates, one by one or all at once."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.form import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint

SHOWN = 60


@dataclass(frozen=True)
class Completion:
    """An answer, or the reason for its absence."""

    reasoning: str = ""
    content: str = ""
    finish_reason: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each tool call, unparsed."""
    token_ids: tuple[int, ...] = ()
    candidates: tuple[Mapping[int, float], ...] = ()
    """For each token, the likeliest tokens at its place with log-probabilities, in nats."""
    error: str = ""
    """Why the answer is missing; empty if it is not."""
    request: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    """The model that the answer names, or ''."""

    @property
    def text(self) -> str:
        """All text that a reader sees."""
        return f"{self.reasoning}\n{self.content}".strip()

    @property
    def shown(self) -> str:
        """The text with its tool calls, or the error, short enough for a sentence."""
        if self.error:
            return self.error
        text = "\n".join(filter(None, (self.text, *map(" ".join, self.calls))))
        return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


CHAT = "/v1/chat/completions"
TOP = 5
EXACT: dict[str, Any] = {
    "temperature": 0,
    "seed": 0,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "logprobs": True,
    "top_logprobs": TOP,
}
TOKEN_PREFIX = "token_id:"  # noqa: S105 - how vLLM spells a token's number
ERROR_CHARACTERS = 300


class CompletionClient:
    """Sends greedy requests to a model; answers come with token ids and log-probabilities."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        """`timeout_s` limits the whole answer."""
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self.requests = 0

    def ask(self, body: Mapping[str, Any]) -> Completion:
        """Return the completion of a chat request; a failure is its `error`."""
        request = {"model": self._endpoint.model, **EXACT, **body}
        self.requests += 1
        try:
            with http.client(self._endpoint) as client:
                reply = client.post(CHAT, json=request, timeout=self._timeout_s)
            if not reply.is_success:
                error = f"answered {reply.status_code}: {reply.text[:ERROR_CHARACTERS]}"
                return Completion(error=error, request=request)
            with reading("the answer"):
                chunks = _events(reply.text) if request.get("stream") else [reply.json()]
                return _put_together(chunks, request)
        except (httpx.HTTPError, ValueError) as error:
            return Completion(error=f"{type(error).__name__}: {error}", request=request)

    def together(self, bodies: Sequence[Mapping[str, Any]]) -> list[Completion]:
        """Send all requests at the same time and return their completions."""
        start = threading.Barrier(len(bodies))

        def ask(body: Mapping[str, Any]) -> Completion:
            start.wait()
            return self.ask(body)

        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(ask, bodies))


def _events(text: str) -> list[dict[str, Any]]:
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines if line != "[DONE]"]
    broken = next((event["error"] for event in events if event.get("error")), None)
    if broken:
        raise ValueError(f"the stream ends in an error: {str(broken)[:ERROR_CHARACTERS]}")
    return events


def _put_together(chunks: Iterable[Mapping[str, Any]], request: Mapping[str, Any]) -> Completion:
    reasoning = content = model = ""
    finish: str | None = None
    ids: list[int] = []
    calls: dict[int, tuple[str, str]] = {}
    candidates: list[dict[int, float]] = []
    for chunk in chunks:
        model = str(chunk.get("model") or model)
        for choice in chunk["choices"]:
            part = choice.get("message") or choice.get("delta") or {}
            thought = part.get("reasoning") or part.get("reasoning_content")
            reasoning += form.text(thought, "reasoning")
            content += form.text(part.get("content"), "content")
            for place, call in enumerate(part.get("tool_calls") or ()):
                number = call.get("index", place)
                name, arguments = calls.get(number, ("", ""))
                function = call.get("function") or {}
                calls[number] = (
                    name + form.text(function.get("name"), "a tool call's name"),
                    arguments + form.text(function.get("arguments"), "a tool call's arguments"),
                )
            ids += form.token_ids(choice.get("token_ids") or [], "token_ids")
            scored = (choice.get("logprobs") or {}).get("content") or ()
            candidates += [_numbered(place.get("top_logprobs") or ()) for place in scored]
            finish = choice.get("finish_reason") or finish
    return Completion(
        reasoning,
        content,
        finish,
        tuple(call for _, call in sorted(calls.items())),
        tuple(ids),
        tuple(candidates),
        request=request,
        model=model,
    )


def _numbered(top: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the candidates of one place by token id, if the server numbers them."""
    return {
        int(candidate["token"].removeprefix(TOKEN_PREFIX)): float(candidate["logprob"])
        for candidate in top
        if str(candidate["token"]).startswith(TOKEN_PREFIX)
    }
