"""Checks parameters whose effect one answer shows: words barred, stops kept, scores, choices.

A parameter that is taken and ignored raises no error: an engine that speculates, or a gateway that
passes only the fields it knows, may drop it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import SAMPLING
from pytest_vllm_gates.conversations.walk import AT_A_TIME
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from openai.types import Completion

    from pytest_vllm_gates.client.endpoint import Endpoint


@dataclass(frozen=True)
class Generated:
    """One choice of a completion."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    logprobs: tuple[float, ...] = ()
    """The log-probabilities of the tokens, in nats."""
    ranked: int = 0
    """At how many tokens the likeliest ones are reported."""


@dataclass(frozen=True)
class Effect:
    """The choices of a request that sets a parameter."""

    parameter: str
    mode: str
    """`whole` or `streamed`."""
    request: Mapping[str, Any]
    choices: tuple[Generated, ...] = ()
    barred: frozenset[int] = frozenset()
    """Tokens that the parameter forbids."""
    refused: str = ""
    """The server's reason to refuse the parameter; '' if it does not."""
    failed: str = ""
    """The server's failure; '' without one."""

    @property
    def name(self) -> str:
        """The name of its case."""
        return f"{self.parameter}, {self.mode}"


TOKENS = 12
SHORTEST_WORD = 3
SHOWN = 200
SERVER_ERRORS = httpx.codes.INTERNAL_SERVER_ERROR


def measure_effects(
    client: openai.OpenAI, endpoint: Endpoint, chat: Mapping[str, Any]
) -> list[Effect]:
    """Send a request for each parameter, on a chat's prompt; some are streamed, too.

    Raises `NotApplicable` if the server has no `/tokenize` or no `/v1/completions`, and
    `Inconclusive` if a plain answer comes without token ids.
    """
    body: dict[str, Any] = {
        **SAMPLING,
        "prompt": _prompt(endpoint, chat),
        "max_tokens": TOKENS,
        "return_token_ids": True,
    }
    plain = _measured(client, endpoint, Effect("none", "whole", body))
    if plain.refused:
        raise NotApplicable(f"the server answers no completion: {plain.refused}")
    if plain.failed:
        return [plain]
    if not (plain.choices and plain.choices[0].token_ids):
        raise Inconclusive("a plain completion reports no tokens (return_token_ids)")
    effects = [
        replace(effect, request={**body, **effect.request})
        for effect in _planned_effects(endpoint, plain.choices[0])
    ]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(lambda effect: _measured(client, endpoint, effect), effects))


def _prompt(endpoint: Endpoint, chat: Mapping[str, Any]) -> list[int]:
    try:
        return http.tokenize(endpoint, dict(chat))
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.is_server_error:
            raise
        reason = f"{type(error).__name__}: {error}"[:SHOWN]
        raise NotApplicable(f"the server reports no chat's prompt (/tokenize): {reason}") from error


def _planned_effects(endpoint: Endpoint, plain: Generated) -> Iterable[Effect]:
    """Yield the effects to measure, with the keys that their requests add to a plain one."""
    yield Effect("n", "streamed", {"n": 2, "temperature": 1.0})
    for mode in ("whole", "streamed"):
        yield Effect("logprobs", mode, {"logprobs": 2})
    if word := _word(endpoint, plain.token_ids):
        token, text = word
        yield Effect("bad_words", "whole", {"bad_words": [text]}, barred=frozenset({token}))
        included = {"stop": [text], "include_stop_str_in_output": True}
        yield Effect("include_stop_str_in_output", "whole", included)


def _word(endpoint: Endpoint, ids: Sequence[int]) -> tuple[int, str] | None:
    """Return a token of the answer that is a whole word, with its text."""
    for number in ids:
        text = http.detokenize(endpoint, [number]).lstrip(" ")
        if not (text.isalpha() and text.isascii() and len(text) >= SHORTEST_WORD):
            continue
        if [number] in (http.token_ids(endpoint, text), http.token_ids(endpoint, f" {text}")):
            return number, text
    return None


def _measured(client: openai.OpenAI, endpoint: Endpoint, effect: Effect) -> Effect:
    """Return the effect with the choices of its request, or with the error."""
    streamed = effect.mode == "streamed"
    try:
        reply = client.completions.create(
            model=endpoint.model,
            prompt=effect.request["prompt"],
            stream=streamed,
            extra_body={**effect.request},
        )
        parts = list(reply) if isinstance(reply, openai.Stream) else [reply]
    except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:SHOWN]
        if isinstance(error, openai.APIStatusError) and error.status_code < SERVER_ERRORS:
            return replace(effect, refused=reason)
        return replace(effect, failed=reason)
    return replace(effect, choices=_choices(parts))


def _choices(parts: Iterable[Completion]) -> tuple[Generated, ...]:
    """Join the choices of all parts of an answer; a whole answer has one part."""
    by_index: dict[int, Generated] = {}
    for part in parts:
        for choice in part.choices or ():
            earlier = by_index.get(choice.index, Generated((), "", None))
            scored = choice.logprobs
            own = (scored and scored.token_logprobs) or ()
            tops = (scored and scored.top_logprobs) or ()
            by_index[choice.index] = Generated(
                (*earlier.token_ids, *(getattr(choice, "token_ids", None) or ())),
                earlier.text + (choice.text or ""),
                choice.finish_reason or earlier.finish_reason,
                (*earlier.logprobs, *own),
                earlier.ranked + sum(1 for top in tops if top),
            )
    return tuple(generated for _, generated in sorted(by_index.items()))


def missing_effects(effect: Effect) -> Iterator[str]:
    """Yield a sentence for each expected effect that is missing."""
    if effect.failed:
        yield f"the server fails: {effect.failed}"
    if effect.failed or effect.refused:
        return
    count = int(effect.request.get("n", 1))
    if len(effect.choices) != count:
        yield f"{count} choices were requested (n), and {len(effect.choices)} came"
    for choice in effect.choices:
        yield from _missing_in_choice(effect, choice)


def _missing_in_choice(effect: Effect, choice: Generated) -> Iterator[str]:
    request, ids = effect.request, choice.token_ids
    if not ids:
        yield "nothing was generated"
        return
    if choice.finish_reason is None:
        yield "the answer has no finish_reason"
    if unexpected := sorted(effect.barred & set(ids)):
        yield f"{effect.parameter} forbids {_tokens(unexpected)}, and it came"
    if request.get("include_stop_str_in_output") and choice.finish_reason == "stop":
        (stop,) = request["stop"]
        if not choice.text.endswith(stop):
            yield f"the answer is to end in its stop {stop!r}, and ends in {choice.text[-40:]!r}"
    if "logprobs" in request:
        yield from _scored(choice)


def _scored(choice: Generated) -> Iterator[str]:
    tokens, scored = len(choice.token_ids), len(choice.logprobs)
    if not tokens == scored == choice.ranked:
        yield (
            f"{tokens} tokens came, log-probabilities of {scored}, and the best at "
            f"{choice.ranked} places"
        )


def _tokens(ids: list[int]) -> str:
    return f"token {', '.join(map(str, ids))}" if len(ids) == 1 else f"tokens {ids}"
