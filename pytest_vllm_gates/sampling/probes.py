"""Chooses, for a known law, the values with the soonest effect that rounding does not blur."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_vllm_gates.sampling.checks_law import EDGE, TIED, processed
from pytest_vllm_gates.sampling.types import Parameters, SamplingProbe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.sampling.types import Law

NEUTRAL = Parameters()
LEAST_CUT = 0.15
"""The part of the probability that a cut has to take away, and has to leave."""
TARGET = 0.6
"""The part of the probability that a cut leaves, if the law has a place to cut there."""
NEAR = 0.05
"""The difference from the requested top_p at which another value is detected, in probability."""
LEAST_APART = 0.02
"""The total variation at which two values of a cut can be distinguished within the budget."""
UP, DOWN = 2.0, -100.0
WINDOW = 6
"""Tokens for the test of a penalty: so few that an answer of eight repeats some."""
SURE = 100.0
"""A bias that leaves only the tokens that have it; vLLM takes no larger one."""
PENALTY = 1.02
"""With `SURE` in every logit this takes two nats and more from a token."""


def untouched() -> SamplingProbe:
    """Return neutral parameters, and faults that models' own defaults and slips would cause."""
    return SamplingProbe(
        "temperature",
        NEUTRAL,
        {
            **{f"temperature is {t}": Parameters(temperature=t) for t in (0.9, 0.95, 1.05, 1.1)},
            "top_k is 50": Parameters(top_k=50),
            "top_p is 0.95": Parameters(top_p=0.95),
            "min_p is 0.05": Parameters(min_p=0.05),
        },
    )


def shaping(law: Law) -> Iterator[SamplingProbe]:
    """Yield one probe for each parameter that changes a law at once."""
    yield from (_temperature(value) for value in (0.6, 1.5))
    cuts = (_top_p(law), _top_k(law), _min_p(law))
    yield from (probe for probe in cuts if probe)
    yield _bias(law)
    yield _allowed(law)


def _temperature(value: float) -> SamplingProbe:
    return SamplingProbe(
        "temperature",
        Parameters(temperature=value),
        {
            "temperature is ignored": NEUTRAL,
            f"temperature is {value * 0.8:.3g}": Parameters(temperature=value * 0.8),
            f"temperature is {value * 1.25:.3g}": Parameters(temperature=value * 1.25),
        },
    )


def _top_p(law: Law) -> SamplingProbe | None:
    """Cut in the middle of a token's own probability, where no sum is in doubt."""
    p = np.exp(processed(law, NEUTRAL))
    sums = np.cumsum(p)
    clear = _gaps(law) & (p > 4 * EDGE) & (sums >= LEAST_CUT) & (sums <= 1 - LEAST_CUT)
    if not clear.any():
        return None
    place = int(np.argmin(np.where(clear, np.abs(sums - TARGET), np.inf)))
    value = law.mass * float(sums[place] - p[place] / 2)
    near = {f"top_p is {v:.3f}": Parameters(top_p=v) for v in (value - NEAR, value + NEAR) if v > 0}
    return _cut(law, "top_p", Parameters(top_p=value), near)


def _top_k(law: Law) -> SamplingProbe | None:
    sums = np.cumsum(law.probabilities)
    clear = _gaps(law) & (sums >= LEAST_CUT) & (sums <= 1 - LEAST_CUT)
    if not clear.any():
        return None
    k = int(np.argmin(np.where(clear, np.abs(sums - TARGET), np.inf))) + 1
    others = {f"top_k is {v}": Parameters(top_k=v) for v in (k // 2, 2 * k) if 0 < v < len(law.ids)}
    return _cut(law, "top_k", Parameters(top_k=k), others)


def _min_p(law: Law) -> SamplingProbe | None:
    sums = np.cumsum(law.probabilities)
    drops = np.append(-np.diff(law.logprobs), 0.0)
    clear = (drops > 4 * TIED) & (sums >= LEAST_CUT) & (sums <= 1 - LEAST_CUT)
    if not clear.any():
        return None
    place = int(np.argmin(np.where(clear, np.abs(sums - TARGET), np.inf)))
    middle = (law.logprobs[place] + law.logprobs[place + 1]) / 2
    value = float(np.exp(middle - law.logprobs[0]))
    others = {f"min_p is {v:.3g}": Parameters(min_p=v) for v in (value / 2, value * 2) if v < 1}
    return _cut(law, "min_p", Parameters(min_p=value), others)


def _cut(law: Law, name: str, asked: Parameters, others: Mapping[str, Parameters]) -> SamplingProbe:
    """Return the probe of a cut, without other values that this law cannot distinguish from it."""
    due = np.exp(processed(law, asked))
    told = {
        what: other
        for what, other in others.items()
        if np.abs(np.exp(processed(law, other)) - due).sum() / 2 >= LEAST_APART
    }
    return SamplingProbe(name, asked, {f"{name} is ignored": NEUTRAL, **told})


def _bias(law: Law) -> SamplingProbe:
    """Forbid some tokens that together are likely, and favour as many others."""
    some = _first(law, LEAST_CUT * 2)
    biases = {int(token): DOWN for token in law.ids[:some]}
    biases |= {int(token): UP for token in law.ids[some : 3 * some]}
    halved = {token: bias / 2 for token, bias in biases.items()}
    upwards = {token: bias for token, bias in biases.items() if bias > 0}
    downwards = {token: bias for token, bias in biases.items() if bias < 0}
    return SamplingProbe(
        "logit_bias",
        Parameters(logit_bias=biases),
        {
            "logit_bias is ignored": NEUTRAL,
            "logit_bias is halved": Parameters(logit_bias=halved),
            "only the negative logit_bias counts": Parameters(logit_bias=downwards),
            "only the positive logit_bias counts": Parameters(logit_bias=upwards),
        },
    )


def _allowed(law: Law) -> SamplingProbe:
    """Allow every other token."""
    allowed = tuple(int(token) for token in law.ids[::2])
    asked = Parameters(allowed_token_ids=allowed)
    return SamplingProbe("allowed_token_ids", asked, {"allowed_token_ids is ignored": NEUTRAL})


def windows(law: Law) -> list[tuple[int, ...]]:
    """Return sets of tokens for the tests of penalties.

    After the likeliest tokens, one is often sure to follow another; unsuggested tokens are about
    equally likely at every place.
    """
    begins = (0, len(law.ids) // 4, len(law.ids) // 2)
    return [tuple(int(token) for token in law.ids[begin : begin + WINDOW]) for begin in begins]


def counting(tokens: tuple[int, ...]) -> list[SamplingProbe]:
    """Return the probes of the penalties that count the answer, among these tokens."""
    among = Parameters(allowed_token_ids=tokens)
    presence, frequency = "presence_penalty", "frequency_penalty"
    return [
        SamplingProbe(
            presence,
            replace(among, presence_penalty=1.5),
            {
                f"{presence} is ignored": among,
                f"{presence} is 0.75": replace(among, presence_penalty=0.75),
                f"{presence} counts every time": replace(among, frequency_penalty=1.5),
            },
        ),
        SamplingProbe(
            frequency,
            replace(among, frequency_penalty=1.0),
            {
                f"{frequency} is ignored": among,
                f"{frequency} is 0.5": replace(among, frequency_penalty=0.5),
                f"{frequency} counts once": replace(among, presence_penalty=1.0),
            },
        ),
    ]


def repeating(tokens: tuple[int, ...]) -> SamplingProbe:
    """Return the probe of the penalty that divides logits, among these tokens."""
    among = Parameters(logit_bias=dict.fromkeys(tokens, SURE))
    asked = replace(among, repetition_penalty=PENALTY)
    return SamplingProbe("repetition_penalty", asked, {"repetition_penalty is ignored": among})


def _gaps(law: Law) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return after which tokens, likeliest first, the next one is clearly less likely."""
    gaps: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = np.append(
        -np.diff(law.logprobs) > 4 * TIED, False
    )
    before = np.insert(-np.diff(law.logprobs) > 4 * TIED, 0, True)
    return gaps & before


def _first(law: Law, probability: float) -> int:
    """Return how many of the likeliest tokens it takes to have that probability."""
    return int(np.argmax(np.cumsum(law.probabilities) >= probability)) + 1
