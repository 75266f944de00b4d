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
    """By how much each output token led the second best, where the source tells."""


@dataclass(frozen=True)
class ReferenceScores:
    """Scores by case, the weights they are of and what computed them."""

    weights: str
    """SHA-256 of the weight files."""
    source: str
    cases: dict[str, Scores]
