"""The distribution that results from documented parameters and an untouched distribution.

The order is that of vLLM's sampler (docstring of `vllm.v1.sample.sampler.Sampler`): allowed tokens,
bias, penalties, temperature, min_p, top_k, top_p. A repetition penalty divides a positive logit and
multiplies a negative one (N. S. Keskar et al., CTRL, arXiv 1909.05858, 4.1); a logit is known up to
a constant of the position, the `offset`. Presence and frequency penalties are as in OpenAI's API.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.sampling.types import Law, Logs, Parameters

TIED = 1e-4
"""Log-probabilities that differ by less are equal to a sort in another order."""
EDGE = 1e-4
"""The part of the probability by which a sum in another order may be off."""


@dataclass(frozen=True)
class Seen:
    """The tokens that penalties count: the prompt's, and the answer's so far."""

    prompt: Sequence[int] = ()
    output: Sequence[int] = ()


NOTHING = Seen()


def processed(
    law: Law, parameters: Parameters, seen: Seen = NOTHING, offset: float | Logs = 0.0
) -> Logs:
    """Return the log-probabilities that a sampler draws from, in the order of the law's tokens.

    An `offset` of shape (n, 1) gives n rows; top_p takes only one.
    """
    logits = law.logprobs + offset
    places = law.places
    if parameters.allowed_token_ids:
        logits = np.where(law.among(parameters.allowed_token_ids), logits, -np.inf)
    for token, bias in parameters.logit_bias.items():
        if token in places:
            logits[..., places[token]] += bias
    logits = _penalised(logits, law, parameters, seen)
    logits = _normalised(logits / parameters.temperature)
    if parameters.min_p:
        floor = logits.max(axis=-1, keepdims=True) + np.log(parameters.min_p)
        logits = _normalised(np.where(logits < floor, -np.inf, logits))
    if parameters.top_k > 0 and parameters.top_k < len(law.ids):
        kth = np.partition(logits, -parameters.top_k)[..., -parameters.top_k, np.newaxis]
        logits = _normalised(np.where(logits < kth - TIED, -np.inf, logits))
    if parameters.top_p < 1:
        order = np.argsort(-logits, kind="stable")
        sums = law.mass * np.cumsum(np.exp(logits[order]))
        before = np.concatenate([[0.0], sums[:-1]])
        kept = np.zeros(len(logits), dtype=bool)
        kept[order] = before < parameters.top_p
        logits = _normalised(np.where(kept, logits, -np.inf))
    return logits


def edges(law: Law, parameters: Parameters) -> set[int]:
    """Return the tokens that rounding may let in or keep out: draws of them are not counted."""
    found: set[int] = set()
    whole = processed(law, replace(parameters, top_p=1.0, top_k=0, min_p=0.0))
    order = np.argsort(-whole, kind="stable")
    if parameters.top_p < 1:
        sums = law.mass * np.cumsum(np.exp(whole[order]))
        before = np.concatenate([[0.0], sums[:-1]])
        last = int(np.argmax(sums >= parameters.top_p - EDGE))
        tied = np.abs(whole - whole[order[last]]) < TIED
        close = np.zeros(len(whole), dtype=bool)
        close[order] = np.abs(before - parameters.top_p) < EDGE
        doubtful = close | tied if tied.sum() > 1 else close
        found |= set(map(int, law.ids[doubtful]))
    if parameters.min_p:
        floor = whole.max() + np.log(parameters.min_p)
        found |= set(map(int, law.ids[np.abs(whole - floor) < TIED]))
    if 0 < parameters.top_k < len(whole):
        kth = whole[order[parameters.top_k - 1]]
        next_one = whole[order[parameters.top_k]]
        if kth - next_one < TIED:
            found |= set(map(int, law.ids[np.abs(whole - kth) < TIED]))
    return found


def _penalised(logits: Logs, law: Law, parameters: Parameters, seen: Seen) -> Logs:
    output = np.zeros(len(law.ids))
    places = law.places
    for token in seen.output:
        if token in places:
            output[places[token]] += 1
    if parameters.repetition_penalty != 1:
        met = law.among([*seen.prompt, *seen.output])
        by = parameters.repetition_penalty
        logits = np.where(met, np.where(logits > 0, logits / by, logits * by), logits)
    logits = logits - parameters.frequency_penalty * output
    return logits - parameters.presence_penalty * (output > 0)


def _normalised(logits: Logs) -> Logs:
    # As np.logaddexp.reduce, several times as fast.
    top = logits.max(axis=-1, keepdims=True)
    total: Logs = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return total
