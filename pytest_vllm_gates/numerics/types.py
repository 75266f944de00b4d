"""Log-probabilities of prompts and answers, and the reference to compare them with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """Natural logarithms throughout; `prompt_logprobs[i]` belongs to `prompt[i + 1]`."""

    prompt: tuple[int, ...]
    prompt_logprobs: tuple[float, ...]
    output: tuple[int, ...]
    output_logprobs: tuple[float, ...]
    leads: tuple[float, ...] = ()
    """The lead of each output token over the second best, if the source reports it."""


@dataclass(frozen=True)
class ReferenceScores:
    """Scores by case, with their weights' hash and their source."""

    weights: str
    """SHA-256 of the weight files."""
    source: str
    cases: dict[str, Scores]
