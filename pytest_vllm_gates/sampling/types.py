"""Parameters of a sampler, its law, and its draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    Logs = NDArray[np.float64]
    """Natural logarithms of probabilities."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a request, in vLLM's names. The defaults have no effect."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()

    def body(self) -> dict[str, Any]:
        """Return them as a request's fields: all are sent, so that no default of a model counts."""
        body: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
        }
        if self.logit_bias:
            body["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        if self.allowed_token_ids:
            body["allowed_token_ids"] = list(self.allowed_token_ids)
        return body

    def told(self, name: str) -> Any:
        """Return one of them, short enough to read: many tokens as their number."""
        value = getattr(self, name)
        return value if isinstance(value, (int, float)) else f"{len(value)} tokens"


@dataclass(frozen=True, eq=False)
class Law:
    """The untouched distribution over some tokens: ids, and log-probabilities that add up to 1."""

    ids: NDArray[np.int64]
    logprobs: Logs
    mass: float = 1.0
    """The probability of all these tokens together if others may be drawn, too."""

    @staticmethod
    def of(known: Mapping[int, float], *, among_others: bool = False) -> Law:
        """Return the law of tokens by their log-probabilities, likeliest first, made to add up.

        Conditional on the token being one of these, this is exact whatever the others weigh.
        `among_others`: others may be drawn, and a top_p counts them.
        """
        ids = np.array(sorted(known, key=lambda token: (-known[token], token)), dtype=np.int64)
        logs = np.array([known[int(token)] for token in ids], dtype=np.float64)
        total = np.logaddexp.reduce(logs)
        mass = min(float(np.exp(total)), 1.0) if among_others else 1.0
        return Law(ids, logs - total, mass)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability of each token."""
        return np.exp(self.logprobs)

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each token by its id."""
        return {int(token): place for place, token in enumerate(self.ids)}

    def among(self, tokens: Iterable[int]) -> NDArray[np.bool_]:
        """Return for each token of the law whether it is one of these."""
        found = np.zeros(len(self.ids), dtype=bool)
        found[[self.places[token] for token in tokens if token in self.places]] = True
        return found

    @property
    def information(self) -> float:
        """The information of one draw on the temperature, nats²: the log-probability's variance."""
        p = self.probabilities
        mean = float(p @ self.logprobs)
        return float(p @ self.logprobs**2) - mean**2

    @property
    def entropy(self) -> float:
        """Nats."""
        return -float(self.probabilities @ self.logprobs)

    @property
    def collision(self) -> float:
        """The probability that two draws are the same token."""
        return float(np.sum(self.probabilities**2))


@dataclass(frozen=True)
class Sample:
    """One choice of a completion: its tokens, and the server's data on each."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    """The log-probability of each token before any parameter was applied."""
    known: tuple[Mapping[int, float], ...] = ()
    """The log-probabilities that came with each token."""
    finish_reason: str | None = None


@dataclass(frozen=True)
class SamplingProbe:
    """A request whose parameters have an effect that can be computed."""

    name: str
    """The parameter under judgement."""
    asked: Parameters
    instead: Mapping[str, Parameters]
    """Faults that a server might have, in words, and the parameters with the same effect."""
    sent: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are sent instead of those of `asked`."""
