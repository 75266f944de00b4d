"""Latencies and goodput of a load by their usual definitions, and their limits.

Units: seconds, and requests per second.

TTFT, time to first token: from the scheduled time of a request until its first token came. Not the
first chunk: that one has the role and no token. Counted from the scheduled time, it includes the
wait of a request that could not be sent yet (no coordinated omission).

ITL, inter-token latency: the time since the tokens before came, shared out among those that came
together. A request of n tokens has as many as it has tokens after its first arrival.

TPOT, time per output token: (last token - first token) / (tokens - 1), one figure a request.

E2E, end-to-end latency: from the scheduled time until the answer was over.

Goodput: requests per second that met all their limits.

The names are those of `vllm bench serve` (`calculate_metrics` in vLLM's `benchmarks/serve.py`),
which differs in two: it takes a chunk for a token, and counts from when a request was really sent.

`figures` has those of a phase; `beyond` those that exceed their limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.catalog import plans
    from pytest_vllm_gates.load.types import AnsweredRequest, Phase

P95, P99 = 0.95, 0.99
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Latency:
    """One request's figures, in seconds."""

    ttft_s: float
    e2e_s: float
    itl_s: tuple[float, ...]
    tpot_s: float | None
    """None for an answer of one token."""


@dataclass(frozen=True)
class LatencyLimits:
    """The limits within which a request counts as good; seconds."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2e_s: float = math.inf

    def met_by(self, latency: Latency) -> bool:
        """Return whether a request stayed within every limit."""
        return (
            latency.ttft_s <= self.ttft_s
            and (latency.tpot_s or 0.0) <= self.tpot_s
            and latency.e2e_s <= self.e2e_s
        )


def latency(answer: AnsweredRequest) -> Latency | None:
    """Return a request's figures; None if no token came or the answer is incomplete."""
    if answer.error or not answer.tokens:
        return None
    times = [at for at, _ in answer.tokens]
    itl: list[float] = []
    for before, (at, count) in zip(times, answer.tokens[1:], strict=False):
        itl += [(at - before) / count] * count
    more = answer.output_tokens - 1
    return Latency(
        ttft_s=times[0] - answer.intended_s,
        e2e_s=answer.ended_s - answer.intended_s,
        itl_s=tuple(itl),
        tpot_s=(times[-1] - times[0]) / more if more else None,
    )


def goodput(answers: Iterable[AnsweredRequest], limits: LatencyLimits, took_s: float) -> float:
    """Return how many requests per second were answered within the limits."""
    latencies = [latency(answer) for answer in answers]
    return sum(1 for times in latencies if times and limits.met_by(times)) / took_s


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share (0 to 1) lies; between two values, interpolated.

    NumPy's `linear` method (Hyndman and Fan's seventh). Raises `ValueError` for no values.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def beyond(phase: Phase, limits: plans.LoadLimits) -> Iterator[str]:
    """Yield the phase's latencies, SLO attainment and preemptions that exceed their limits.

    A phase without answers yields preemptions only.
    """
    latencies = [request for request in map(latency, phase.answers) if request]
    if latencies:
        ttft = percentile([request.ttft_s for request in latencies], P95)
        if ttft > limits.ttft_p95_s:
            yield f"p95 TTFT is {ttft:.2f} s, {limits.ttft_p95_s:g} s is the limit"
        gaps = [gap for request in latencies for gap in request.itl_s]
        if gaps and (itl := percentile(gaps, P95)) > limits.itl_p95_s:
            yield f"p95 ITL is {1000 * itl:.0f} ms, {1000 * limits.itl_p95_s:.0f} ms is the limit"
        share = sum(map(_request_limits(limits).met_by, latencies)) / len(phase.answers)
        if share < limits.slo_attainment:
            yield (
                f"{share:.0%} of the requests had their first token within {limits.ttft_p95_s:g} s "
                f"and then at most {1000 * limits.itl_p95_s:.0f} ms a token, "
                f"{limits.slo_attainment:.0%} have to"
            )
    preempted = (
        phase.after.preempted - phase.before.preempted if phase.before and phase.after else 0
    )
    if preempted > limits.preemptions:
        yield (
            f"{preempted} requests were put off because the KV cache was full, "
            f"{limits.preemptions} may be"
        )


def figures(phase: Phase, limits: plans.LoadLimits) -> dict[str, Any]:
    """Return a phase's figures by the field's names; seconds, and per second."""
    latencies = [request for request in map(latency, phase.answers) if request]
    tokens = sum(answer.output_tokens for answer in phase.answers)
    several = {
        "ttft_s": [request.ttft_s for request in latencies],
        "itl_s": [gap for request in latencies for gap in request.itl_s],
        "tpot_s": [request.tpot_s for request in latencies if request.tpot_s is not None],
        "e2e_s": [request.e2e_s for request in latencies],
    }
    return {
        "output_tokens_per_s": round(tokens / phase.took_s, 2),
        "requests_per_s": round(len(latencies) / phase.took_s, 3),
        "goodput_per_s": round(goodput(phase.answers, _request_limits(limits), phase.took_s), 3),
        **{
            name: {f"p{share}": round(percentile(values, share / 100), 4) for share in PERCENTILES}
            for name, values in several.items()
            if values
        },
        "sent_late_p99_s": round(percentile(phase.late_s, P99), 4) if phase.late_s else None,
        "counted_by": sorted({answer.counted_by for answer in phase.answers if answer.counted_by}),
    }


def _request_limits(limits: plans.LoadLimits) -> LatencyLimits:
    """Return what one request has to keep to count as good."""
    return LatencyLimits(ttft_s=limits.ttft_p95_s, tpot_s=limits.itl_p95_s)
