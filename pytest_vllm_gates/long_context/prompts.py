"""Long prompts of an exact length, the scores of their ends, and needles hidden in them."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.server.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.long_context.types import LongContext
    from pytest_vllm_gates.numerics.types import ReferenceScores, Scores

PARAGRAPHS = 64
SPARE = 48
"""Tokens of a chat prompt besides the message, at most."""


@contextlib.contextmanager
def metrics(endpoint: Endpoint) -> Iterator[Metrics | None]:
    """Yield a server's metrics, None if it exposes none."""
    try:
        served = Metrics(endpoint)
    except NotApplicable:
        yield None
        return
    with served:
        yield served


def token_ids(endpoint: Endpoint, plan: LongContext, count: int) -> tuple[int, ...]:
    """Return the first `count` tokens of the text, or a few more."""
    paragraphs = PARAGRAPHS
    while True:
        ids = http.token_ids(endpoint, "".join(plan.text_of(paragraphs)))
        if len(ids) >= count:
            return tuple(ids[:count])
        paragraphs = max(paragraphs * count // len(ids) + 1, paragraphs + 1)


def last_reference_scores(reference: ReferenceScores, positions: int) -> ReferenceScores:
    """Return a reference with only the last positions of its prompts."""
    cases = {name: last_scores(scores, positions) for name, scores in reference.cases.items()}
    return replace(reference, cases=cases)


def last_scores(scores: Scores, positions: int) -> Scores:
    """Return only the scores of a prompt's last positions."""
    return replace(
        scores,
        prompt=scores.prompt[-positions - 1 :],
        prompt_logprobs=scores.prompt_logprobs[-positions:],
    )


@dataclass(frozen=True)
class NeedleAnswer:
    """The answer to the question about a needle."""

    number: str
    shown: str
    found: bool


class Haystack:
    """Hides a sentence in the text and sends the question about it."""

    def __init__(self, endpoint: Endpoint, family: Family, plan: LongContext) -> None:
        self._endpoint = endpoint
        self._plan = plan
        self._client = CompletionClient(endpoint, ANSWER_LIMIT_S)
        kwargs = family.thinking_kwargs("off")
        self._more = {"chat_template_kwargs": kwargs} if kwargs else {}
        first = "".join(plan.text_of(PARAGRAPHS))
        self._tokens_each = len(http.token_ids(endpoint, first)) / PARAGRAPHS

    def ask(self, tokens: int, depth: float) -> NeedleAnswer:
        """Hide a number at a depth (0 to 1) of a prompt of about `tokens` tokens; request it."""
        needle = self._plan.needle
        number = str(secrets.randbelow(900_000) + 100_000)
        room = tokens - needle.answer_tokens - SPARE
        paragraphs = list(self._plan.text_of(max(int(room / self._tokens_each) - 2, 2)))
        paragraphs.insert(round(depth * len(paragraphs)), needle.says.format(number=number) + "\n")
        text = "".join(paragraphs) + f"\n{needle.asks}"
        completion = self._client.ask(
            {
                "messages": [{"role": "user", "content": text}],
                "max_tokens": needle.answer_tokens,
                **self._more,
            }
        )
        return NeedleAnswer(number, completion.shown, number in completion.text)
