"""Checks parameters of a completion's prompt and end: each is applied or refused, never ignored.

Sources: https://platform.openai.com/docs/api-reference/completions/create for `echo`, `suffix` and
`best_of`; https://docs.vllm.ai/en/latest/serving/openai_compatible_server for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.client.chat import SAMPLING
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.conversations.checks import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

COMPLETIONS = "/v1/completions"
PROMPT = "The capital of France is the city of Paris"
SUFFIX = " It lies on the river Seine."
TOKENS = 4
MORE_TOKENS = 24
"""Tokens after an answer's end, which `ignore_eos` makes it continue."""
KEPT = 3
"""Tokens that `truncate_prompt_tokens` leaves of the prompt."""
SHOWN = 80


@dataclass(frozen=True)
class PromptParameter:
    """The answer to one request that sets a parameter."""

    name: str
    request: Mapping[str, Any]
    status: int
    text: str = ""
    """The answer: the choice's text, or the error."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None

    @property
    def refused(self) -> bool:
        """Whether the server refuses the parameter."""
        return httpx.codes.is_client_error(self.status)


def measure(endpoint: Endpoint, chat: Mapping[str, Any]) -> list[PromptParameter]:
    """Send a request for each parameter; `chat` is the body of a chat with a short answer."""
    whole = {**SAMPLING, "prompt": PROMPT, "max_tokens": TOKENS}
    plain_chat = {**SAMPLING, **chat, "max_tokens": TOKENS}
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": (COMPLETIONS, whole),
        "echo": (COMPLETIONS, {**whole, "echo": True}),
        "echo, streamed": (COMPLETIONS, {**whole, "echo": True, "stream": True}),
        "suffix": (COMPLETIONS, {**whole, "suffix": SUFFIX}),
        "best_of": (COMPLETIONS, {**whole, "temperature": 1.0, "best_of": 1, "n": 2}),
        "truncate_prompt_tokens": (COMPLETIONS, {**whole, "truncate_prompt_tokens": KEPT}),
        "truncate_prompt_tokens of a chat": (
            http.CHAT,
            {**plain_chat, "truncate_prompt_tokens": KEPT},
        ),
        "ignore_eos": (
            COMPLETIONS,
            {**whole, "max_tokens": TOKENS + MORE_TOKENS, "ignore_eos": True},
        ),
        "ignore_eos of a chat": (
            http.CHAT,
            {**plain_chat, "max_tokens": TOKENS + MORE_TOKENS, "ignore_eos": True},
        ),
    }
    return [_asked(endpoint, name, path, body) for name, (path, body) in requests.items()]


def ignored(parameters: list[PromptParameter]) -> Iterator[tuple[PromptParameter, str]]:
    """Yield each parameter that was accepted without its documented effect."""
    plain = next(each for each in parameters if each.name == "plain")
    for each in parameters:
        for sentence in () if each.refused else _ignored(each, plain):
            yield each, sentence


def _ignored(each: PromptParameter, plain: PromptParameter) -> Iterator[str]:
    request = each.request
    if each.status != httpx.codes.OK:
        yield f"the server fails: answered {each.status}: {each.text[:SHOWN]}"
        return
    if request.get("echo"):
        if not each.text.startswith(PROMPT):
            yield f"echo: the text begins with {each.text[:SHOWN]!r}, not with the prompt"
        elif not each.text.removeprefix(PROMPT):
            yield "echo: nothing comes after the prompt"
    if "suffix" in request and each.prompt_tokens <= plain.prompt_tokens:
        yield (
            f"suffix: the prompt has {each.prompt_tokens} tokens, as many as without it: it is "
            "taken and ignored"
        )
    if "best_of" in request:
        yield "best_of is below n, which the API refuses, and it is answered: it is ignored"
    if "truncate_prompt_tokens" in request and each.prompt_tokens != KEPT:
        yield f"truncate_prompt_tokens {KEPT}: the prompt has {each.prompt_tokens} tokens"
    if request.get("ignore_eos"):
        due, tokens = request["max_tokens"], each.completion_tokens
        if tokens != due or each.finish_reason != "length":
            yield (
                f"ignore_eos: expected {due} tokens (length), and {tokens} came "
                f"({each.finish_reason})"
            )


def _asked(endpoint: Endpoint, name: str, path: str, request: Mapping[str, Any]) -> PromptParameter:
    reply = http.post(endpoint, path, request)
    if not reply.is_success:
        return PromptParameter(name, request, reply.status_code, reply.text)
    with reading(f"the answer of {path}"):
        streamed = request.get("stream")
        recording = Recording(pieces=((0.0, reply.content),))
        answers = events.chunks(recording) if streamed else [reply.json()]
        choices = [choice for answer in answers for choice in answer["choices"]]
        texts = [
            choice.get("text") or choice.get("message", {}).get("content") for choice in choices
        ]
        usage = answers[0].get("usage") or {"prompt_tokens": 0, "completion_tokens": 0}
        return PromptParameter(
            name=name,
            request=request,
            status=reply.status_code,
            text="".join(text or "" for text in texts),
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            finish_reason=choices[-1]["finish_reason"],
        )
