"""Checks samples: the sentence of a probe, seeds, limits and the thinking budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_vllm_gates.sampling.checks_odds import AuditOdds, SequentialTest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.sampling.types import Parameters, Sample

FLIP = 0.02
"""How often a token of a seeded answer may differ because a sum was rounded differently."""
SAME, OTHER = "always the same", "drawn anew"
SHOWN = 4


def sentence(test: SequentialTest, name: str, asked: Parameters) -> str | None:
    """Return the fault of a parameter, None if the test does not fail."""
    if not test.fails:
        return None
    value = asked.told(name)
    shown = f" {value:.4g}" if isinstance(value, (int, float)) else f" of {value}"
    if test.impossible:
        return (
            f"{name}{shown}: {len(test.impossible)} of {test.draws} tokens are impossible with it, "
            f"for example {test.impossible[0]}; it looks as if {test.likeliest}"
        )
    nats = min(test.ratio(test.likeliest), test.evidence)
    return (
        f"{name}{shown}: {test.draws} tokens come with odds of 10^{nats / math.log(10):.0f} to 1 "
        f"as if {test.likeliest}"
    )


def repeats(pairs: Iterable[tuple[Sample, Sample]], odds: AuditOdds) -> SequentialTest:
    """Test that the second answer of each pair repeats the first; the alternative is `OTHER`.

    Compared up to the first token that differs. Two draws agree by chance with the probability
    that the server itself gives the token.
    """
    test = SequentialTest.between([OTHER], odds)
    for again, chance, token in _compared(pairs):
        same, other = (1 - FLIP, chance) if again else (FLIP, 1 - chance)
        test.add([token], _log(same), {OTHER: _log(other)})
    return test


def differs(pairs: Iterable[tuple[Sample, Sample]], odds: AuditOdds) -> SequentialTest:
    """Test that the answers of each pair are drawn apart; the alternative is `SAME`."""
    test = SequentialTest.between([SAME], odds)
    for again, chance, token in _compared(pairs):
        same, other = (1 - FLIP, chance) if again else (FLIP, 1 - chance)
        test.add([token], _log(other), {SAME: _log(same)})
    return test


def _compared(pairs: Iterable[tuple[Sample, Sample]]) -> Iterable[tuple[bool, float, int]]:
    for first, second in pairs:
        rows = zip(first.tokens, first.logprobs, second.tokens, strict=False)
        for token, logprob, other in rows:
            yield token == other, min(math.exp(logprob), 1 - 1e-9), token
            if token != other:
                break


def _log(probability: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([math.log(probability)])


def count_fault(samples: Sequence[Sample], n: int) -> str | None:
    """Return the fault of a request for `n` answers."""
    return None if len(samples) == n else f"n {n}: {len(samples)} answers came"


def length_fault(name: str, lengths: Iterable[int], most: int) -> str | None:
    """Return the fault of answers that only a limit of tokens ends."""
    other = sorted({length for length in lengths if length != most})
    if not other:
        return None
    return f"{name} {most}: answers have {_some(other)} tokens although nothing else ends them"


def stop_fault(
    samples: Sequence[Sample], stops: Iterable[int], probability: float, odds: AuditOdds
) -> str | None:
    """Return the fault of answers that tokens of `stops` end.

    `probability` is the chance that the first token is one of them.
    """
    ends = set(stops)
    past = [token for sample in samples for token in sample.tokens[:-1] if token in ends]
    if past:
        return f"stop_token_ids: {len(past)} answers go on after token {past[0]}, which ends them"
    late = [s for s in samples if s.tokens and s.tokens[-1] in ends and s.finish_reason != "stop"]
    if late:
        return (
            f"stop_token_ids: an answer ends with token {late[0].tokens[-1]}, and its "
            f"finish_reason is {late[0].finish_reason!r}"
        )
    stopped = [sample for sample in samples if sample.finish_reason == "stop"]
    if not stopped and len(samples) * math.log1p(-probability) < math.log(odds.alarm):
        return (
            f"stop_token_ids: none of {len(samples)} answers stops, and each had a probability of "
            f"{probability:.2f} to do so at the first token"
        )
    return None


def least_fault(samples: Sequence[Sample], least: int) -> str | None:
    """Return the fault of answers that have to have `least` tokens before any stop."""
    short = [s for s in samples if s.finish_reason == "stop" and len(s.tokens) < least]
    if not short:
        return None
    lengths = _some(sorted({len(sample.tokens) for sample in short}))
    return f"min_tokens {least}: {len(short)} of {len(samples)} answers stop after {lengths} tokens"


def thought(tokens: Sequence[int], close: Sequence[int]) -> int:
    """Return the tokens before the closing tag, all of them without one."""
    width = len(close)
    places = range(len(tokens) - width + 1)
    return next(
        (at for at in places if tuple(tokens[at : at + width]) == tuple(close)), len(tokens)
    )


def budget_fault(free: int, limited: int, budget: int, slack: int) -> str | None:
    """Return the fault of a thinking budget; `free` and `limited` are tokens without and with it.

    `slack` are the tokens of the opening tag and those that a server adds to finish.
    """
    if limited <= budget + slack:
        return None
    ignored = ", as without it: it is ignored" if limited == free else f", {free} without it"
    return f"thinking_token_budget {budget}: {limited} tokens of reasoning{ignored}"


def _some(values: Sequence[int]) -> str:
    shown = ", ".join(str(value) for value in values[:SHOWN])
    return f"{shown} and more" if len(values) > SHOWN else shown
