"""Finds a prompt after which many tokens are likely, and the law of the next one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_vllm_gates.sampling.types import Law

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.sampling.client import SamplingClient
    from pytest_vllm_gates.sampling.types import Sample

EXACT_NATS = 1e-3
"""The largest distance of a draw's own log-probability from the law's if they are the same law."""
ENOUGH = 5.0
"""The information on the temperature, nats², at which the search for a position ends."""
LEAST_ENTROPY = 1.5
"""Nats. A law with less hardly has a choice."""
FEW = 64
"""Draws that show whether the law is the draws' own."""
SOME = 64
"""Tokens by which a vocabulary that is too large to be read is judged."""
HOT = 2.0
MOST_READ = 4
"""The laws that are read before the best of them is taken. To read one takes as long as hundreds of
draws."""
TAIL = 256
"""The assumed number of tokens beside the likeliest ones, all equally likely."""


@dataclass(frozen=True)
class Position:
    """A prompt and the law of its next token."""

    prompt: tuple[int, ...]
    law: Law
    whole: bool
    """Whether the law covers the whole vocabulary."""
    exact: bool
    """Whether each draw is from this very law; else each comes with its own."""
    tells: bool
    """Whether the server returns the log-probabilities of any token, not only of the likeliest."""
    mass: float = 1.0
    """The probability of the law's tokens without parameters."""

    @property
    def window(self) -> tuple[int, ...]:
        """The tokens that are requested if not all can be followed."""
        tokens = tuple(int(token) for token in self.law.ids)
        if self.exact or not self.tells:
            return ()
        if len(tokens) <= SOME:
            return tokens
        half = SOME // 2
        return tokens[:half] + tokens[half :: -(-(len(tokens) - half) // half)]


def find(client: SamplingClient, texts: Iterable[str]) -> Position | None:
    """Return a position with enough information on the temperature, or the best one that was read.

    None if no position has a choice of tokens.
    """
    best: Position | None = None
    for number, prompt in enumerate(_prompts(client, texts)):
        if best and number >= MOST_READ:
            break
        position = _position(client, prompt)
        if position.law.entropy < LEAST_ENTROPY:
            continue
        if best is None or position.law.information > best.law.information:
            best = position
        if best.law.information >= ENOUGH:
            break
    if best is None or not best.whole:
        return best
    body = {"max_tokens": 1, "temperature": 1, "n": FEW, "logprobs": 0}
    return replace(
        best, exact=worst_off(best.law, client.complete(best.prompt, body)) <= EXACT_NATS
    )


def _prompts(client: SamplingClient, texts: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """Yield the first text, then the others in the order of what their likeliest tokens promise."""
    first, *others = texts
    yield tuple(client.token_ids(first))
    outlooks = sorted(client.outlooks(others), key=lambda outlook: promise(outlook[1]))
    yield from (prompt for prompt, _ in reversed(outlooks))


def promise(likeliest: Mapping[int, float]) -> float:
    """Return the information on the temperature, nats², of a law with such likeliest tokens."""
    left = 1.0 - min(1.0, float(np.sum(np.exp([*likeliest.values()]))))
    tail = {-1 - n: float(np.log(left / TAIL)) for n in range(TAIL)} if left else {}
    return Law.of({**likeliest, **tail}).information


def _position(client: SamplingClient, prompt: tuple[int, ...]) -> Position:
    law = client.vocabulary(prompt)
    if law is not None:
        return Position(prompt, law, whole=True, exact=False, tells=True)
    tokens = set(client.likeliest(prompt))
    law = Law.of(client.likeliest(prompt), among_others=True)
    body = {"max_tokens": 1, "temperature": HOT, "n": 2 * SOME, "ignore_eos": True}
    drawn = [sample.tokens[0] for sample in client.complete(prompt, body) if sample.tokens]
    wanted = [*tokens, *(token for token in dict.fromkeys(drawn) if token not in tokens)][:SOME]
    scores = client.scores(prompt, wanted)
    tells = len(scores) == len(wanted)
    mass = Law.of(scores, among_others=True).mass if tells else law.mass
    law = Law.of(scores) if tells else law
    return Position(prompt, law, whole=False, exact=False, tells=tells, mass=mass)


def worst_off(law: Law, samples: Sequence[Sample]) -> float:
    """Return how far the draws' own log-probabilities are from the law's at the worst, in nats."""
    places = law.places
    return max(
        abs(sample.logprobs[0] - float(law.logprobs[places[sample.tokens[0]]]))
        for sample in samples
    )
