"""The figures of a phase of a load, and what of them is beyond its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.load.latency import P95, P99, Limits, goodput, latency, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts import traffic
    from pytest_vllm_gates.load.types import Phase


def beyond(phase: Phase, limits: traffic.Limits) -> Iterator[str]:
    """Yield what of a phase's latencies, SLO attainment and preemptions is beyond its limits.

    Of a phase in which nothing was answered nothing is told but preemptions.
    """
    times = [one for one in map(latency, phase.answers) if one]
    if times:
        ttft = percentile([one.ttft_s for one in times], P95)
        if ttft > limits.ttft_p95_s:
            yield f"p95 TTFT is {ttft:.2f} s, {limits.ttft_p95_s:g} s is the limit"
        gaps = [gap for one in times for gap in one.itl_s]
        if gaps and (itl := percentile(gaps, P95)) > limits.itl_p95_s:
            yield f"p95 ITL is {1000 * itl:.0f} ms, {1000 * limits.itl_p95_s:.0f} ms is the limit"
        share = sum(map(_of_one(limits).met_by, times)) / len(phase.answers)
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


def figures(phase: Phase, limits: traffic.Limits) -> dict[str, Any]:
    """Return a phase's figures by the field's names; seconds, and per second."""
    times = [one for one in map(latency, phase.answers) if one]
    tokens = sum(one.output_tokens for one in phase.answers)
    several = {
        "ttft_s": [one.ttft_s for one in times],
        "itl_s": [gap for one in times for gap in one.itl_s],
        "tpot_s": [one.tpot_s for one in times if one.tpot_s is not None],
        "e2e_s": [one.e2e_s for one in times],
    }
    return {
        "output_tokens_per_s": round(tokens / phase.took_s, 2),
        "requests_per_s": round(len(times) / phase.took_s, 3),
        "goodput_per_s": round(goodput(phase.answers, _of_one(limits), phase.took_s), 3),
        **{
            name: {f"p{share}": round(percentile(values, share / 100), 4) for share in (50, 95, 99)}
            for name, values in several.items()
            if values
        },
        "sent_late_p99_s": round(percentile(phase.late_s, P99), 4) if phase.late_s else None,
        "counted_by": sorted({one.counted_by for one in phase.answers if one.counted_by}),
    }


def _of_one(limits: traffic.Limits) -> Limits:
    """Return what one request has to keep to count as good."""
    return Limits(ttft_s=limits.ttft_p95_s, tpot_s=limits.itl_p95_s)
