"""Draws tokens from a server, and reads the law of its draws.

`/v1/completions` takes prompts as token ids, many answers to one prompt (`n`), and from vLLM 0.30
on `logprob_token_ids`, which returns the log-probabilities of chosen tokens whatever their rank.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import ERROR_CHARACTERS, TOKEN_PREFIX
from pytest_vllm_gates.client.form import count, reading, token_ids
from pytest_vllm_gates.sampling.types import Law, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
LIMIT_S = 180.0
BLOCK = 128
"""Tokens whose log-probabilities vLLM returns in one answer (`MAX_LOGPROB_TOKEN_IDS`)."""
AT_A_TIME = 8
"""Blocks that are read at once: the engine computes them in one batch."""
BLOCKS = 32
"""Blocks of a vocabulary that are read; a larger one is judged by some of its tokens."""
TOP = 20
"""The likeliest tokens that a server returns by default."""
REFUSED = (httpx.codes.BAD_REQUEST, httpx.codes.NOT_FOUND, httpx.codes.UNPROCESSABLE_CONTENT)


class RefusedRequest(Exception):  # noqa: N818 - an answer that a parameter may get
    """The server refuses a request; the text is its answer."""


class SamplingClient:
    """Sends requests for samples and counts the tokens that came back."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._counts: list[int] = []
        self._size: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens that were sampled so far."""
        return sum(self._counts)

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text as a prompt, the server's special tokens included."""
        body = {"prompt": text, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        reply = self.post(COMPLETIONS, body)
        with reading(f"the answer of {COMPLETIONS}"):
            return token_ids(reply["choices"][0]["prompt_token_ids"], "prompt_token_ids")

    def outlooks(self, texts: Sequence[str]) -> list[tuple[tuple[int, ...], Mapping[int, float]]]:
        """Return the token ids of each text as a prompt, and the likeliest next tokens.

        A server that refuses to return these has none.
        """

        def likeliest(prompt: tuple[int, ...]) -> Mapping[int, float]:
            with contextlib.suppress(RefusedRequest):
                return self.likeliest(prompt)
            return {}

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            prompts = [tuple(ids) for ids in pool.map(self.token_ids, texts)]
            return [*zip(prompts, pool.map(likeliest, prompts), strict=True)]

    def complete(self, prompt: Sequence[int], body: Mapping[str, Any]) -> list[Sample]:
        """Return the answers to a prompt; raises `RefusedRequest`, or an `httpx.HTTPError`."""
        request = {"prompt": list(prompt), "return_tokens_as_token_ids": True, **body}
        reply = self.post(COMPLETIONS, {**request, "return_token_ids": True})
        with reading(f"the answer of {COMPLETIONS}"):
            samples = [_sample(choice) for choice in reply["choices"]]
        self._counts += [len(sample.tokens) for sample in samples]
        return samples

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a chat as it arrived; raises as `complete` does."""
        reply = self.post(CHAT, {**body, "return_token_ids": True})
        with reading(f"the answer of {CHAT}"):
            self._counts.append(count(reply["usage"]["completion_tokens"], "completion_tokens"))
        return reply

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a body to the served model and return the JSON of the answer."""
        with http.client(self._endpoint) as client:
            request = {"model": self._endpoint.model, **body}
            reply = client.post(path, json=request, timeout=LIMIT_S)
        if reply.status_code in REFUSED:
            raise RefusedRequest(f"{reply.status_code}: {reply.text[:ERROR_CHARACTERS]}")
        with reading(f"the answer of {path}"):
            answer: dict[str, Any] = reply.raise_for_status().json()
        return answer

    def vocabulary(self, prompt: Sequence[int]) -> Law | None:
        """Return the law of a prompt's next token, None if the server does not return all of it.

        A vocabulary ends where the server refuses a token; its size is determined once.
        """
        if self._size is None:
            self._size = self._measured_size(prompt)
        size = self._size
        blocks = [range(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK)]
        known: dict[int, float] = {}
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for read in pool.map(lambda block: self.scores(prompt, block), blocks):
                known |= read
        return Law.of(known) if len(known) == size > 0 else None

    def _measured_size(self, prompt: Sequence[int]) -> int:
        """Return the size of a small vocabulary, 0 if it is large or the server hides it."""
        low, high = 0, BLOCK * BLOCKS
        if self._has(prompt, high):
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._has(prompt, middle) else (low, middle)
        return high

    def _has(self, prompt: Sequence[int], token: int) -> bool:
        """Return whether the vocabulary has a token, or the server does not report it."""
        try:
            self.scores(prompt, [token])
        except RefusedRequest:
            return False
        return True

    def scores(self, prompt: Sequence[int], tokens: Sequence[int]) -> dict[int, float]:
        """Return the log-probabilities of possible next tokens, those that the server returns."""
        body = {"max_tokens": 1, "temperature": 0, **told(tokens)}
        (sample,) = self.complete(prompt, body)
        asked = set(tokens)
        return {token: log for token, log in sample.known[0].items() if token in asked}

    def likeliest(self, prompt: Sequence[int]) -> dict[int, float]:
        """Return the likeliest next tokens with their log-probabilities."""
        body = {"max_tokens": 1, "temperature": 0, "logprobs": TOP}
        (sample,) = self.complete(prompt, body)
        return dict(sample.known[0])


def told(tokens: Sequence[int]) -> dict[str, Any]:
    """Return the fields that request the log-probabilities of these tokens at every step."""
    return {"logprobs": 1, "logprob_token_ids": list(tokens)}


def _sample(choice: Mapping[str, Any]) -> Sample:
    scored = choice.get("logprobs") or {}
    return Sample(
        tokens=tuple(token_ids(choice["token_ids"], "token_ids")),
        logprobs=tuple(float(value) for value in scored.get("token_logprobs") or ()),
        known=tuple(_numbered(place or {}) for place in scored.get("top_logprobs") or ()),
        finish_reason=choice.get("finish_reason"),
    )


def _numbered(place: Mapping[str, Any]) -> dict[int, float]:
    return {
        int(name.removeprefix(TOKEN_PREFIX)): float(value)
        for name, value in place.items()
        if name.startswith(TOKEN_PREFIX)
    }
