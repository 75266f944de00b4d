"""Compares when requests were sent with their schedule: a difference is the client's limit.

The squared coefficient of variation of the gaps between two requests (variance / mean²) is 0 for a
constant rate and 1 for a Poisson process. For n gaps of a Poisson process it is, but for constants,
Greenwood's statistic, whose mean and variance are known exactly (P. A. P. Moran, The random
division of an interval, Suppl. JRSS 9, 1947): n / (n + 1), and 4 n⁴ / ((n - 1) (n + 1)² (n + 2)
(n + 3)). Its tails are taken for those of a log-normal distribution: in simulations of 10 to 2000
gaps up to 2 in 1000 Poisson processes lie outside the interval instead of 1.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.load.latency import P99, percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog import plans
    from pytest_vllm_gates.load.types import Phase, Schedule

POISSON, CONSTANT = "poisson", "constant"
QUANTILE = 3.29
"""Standard deviations: 999 of 1000 within."""
FEWEST_GAPS = 10
UNEVEN = 0.25
"""Gaps at a constant rate scatter by less than half of their mean."""
LATE_SHARE = 0.25
"""The share of the limit on first tokens by which the client itself may be late."""
GROWTH = 0.1
"""The share of a phase's time by which a client that cannot keep its rate falls behind; measured by
the median of the last quarter against the median of the first."""
QUARTER = 4
LEAST_S = 0.02
"""Requests of the same moment go out one after the other, at most so far apart."""
OWN_ERRORS = ("no socket", "cannot connect: EADDRNOTAVAIL", "cannot connect: EMFILE")
"""The beginnings of errors of requests that this machine's limits kept from being sent."""


def late(phase: Phase, limits: plans.LoadLimits) -> str:
    """Return by how much the client was late, if that may explain the latencies; else ''."""
    lag_s = percentile(phase.late_s, P99) if phase.late_s else 0.0
    if lag_s <= LATE_SHARE * limits.ttft_p95_s:
        return ""
    return f"this client sent requests up to {lag_s:.2f} s late (p99)"


def send_fault(phase: Phase) -> str:
    """Return which limit of this machine kept requests from being sent; '' for none."""
    errors = [answer.error for answer in phase.answers if answer.error.startswith(OWN_ERRORS)]
    if not errors:
        return ""
    return (
        f"this client could not send {len(errors)} of {len(phase.answers)} requests ({errors[0]}): "
        "raise its limits (ulimit -n, net.ipv4.ip_local_port_range) or lower the load"
    )


def schedule_fault(phase: Phase) -> str:
    """Return how the sent requests differ from their schedule; '' if they do not.

    A phase whose requests are sent as users become free has no schedule.
    """
    schedule = phase.schedule
    if schedule is None:
        return ""
    return send_fault(phase) or _growing_lag(schedule) or _wrong_spacing(schedule)


def _growing_lag(schedule: Schedule) -> str:
    """Return that the client lags more and more, with the rate it reaches; '' if it does not."""
    times = zip(schedule.intended_s, schedule.sent_s, strict=True)
    pairs = [(intended, sent) for intended, sent in times if sent is not None]
    if len(pairs) <= FEWEST_GAPS:
        return ""
    lags = [sent - intended for intended, sent in pairs]
    few = len(lags) // QUARTER
    grown = statistics.median(lags[-few:]) - statistics.median(lags[:few])
    if grown <= max(GROWTH * (pairs[-1][0] - pairs[0][0]), LEAST_S):
        return ""
    planned_rate, sent_rate = (_rate(times) for times in zip(*pairs, strict=True))
    return (
        f"this client falls {grown:.2f} s behind: {planned_rate:.4g} requests per second were "
        f"planned and it sends {sent_rate:.4g}; that is its own limit, not the server's"
    )


def _wrong_spacing(schedule: Schedule) -> str:
    """Return that the gaps between requests do not match the planned process; '' if they do."""
    sent = _sent_times(schedule)
    squared_cv = variation(sent)
    if squared_cv is None or len(sent) <= FEWEST_GAPS:
        return ""
    if schedule.process == CONSTANT and squared_cv > UNEVEN:
        return (
            f"a constant rate was planned, and this client sent at uneven times: the gaps' "
            f"squared coefficient of variation is {squared_cv:.2f}, expected at most {UNEVEN:g}"
        )
    low, high = tolerance(len(sent) - 1)
    if schedule.process == POISSON and not low <= squared_cv <= high:
        return (
            f"Poisson arrivals were planned, and this client's arrivals are not: the gaps' "
            f"squared coefficient of variation is {squared_cv:.2f}, expected {low:.2f} to "
            f"{high:.2f} for {len(sent) - 1} gaps"
        )
    return ""


def _sent_times(schedule: Schedule) -> list[float]:
    return sorted(value for value in schedule.sent_s if value is not None)


def variation(times: Sequence[float]) -> float | None:
    """Return the squared coefficient of variation of the gaps; None for fewer than two gaps."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    if len(gaps) < 2 or not (mean := statistics.fmean(gaps)):  # noqa: PLR2004 - or none varies
        return None
    return statistics.variance(gaps) / mean**2


def tolerance(gaps: int) -> tuple[float, float]:
    """Return the interval of the squared variation of 999 in 1000 Poisson processes."""
    mean = gaps / (gaps + 1)
    variance = 4 * gaps**4 / ((gaps - 1) * (gaps + 1) ** 2 * (gaps + 2) * (gaps + 3))
    spread = math.log1p(variance / mean**2)
    middle = math.log(mean) - spread / 2
    far = QUANTILE * math.sqrt(spread)
    return math.exp(middle - far), math.exp(middle + far)


def as_evidence(phase: Phase) -> dict[str, Any] | None:
    """Return the planned and the sent arrivals of a phase as JSON; None without a schedule."""
    if (schedule := phase.schedule) is None:
        return None
    sent = _sent_times(schedule)
    gaps = len(sent) - 1
    poisson = schedule.process == POISSON and gaps >= FEWEST_GAPS
    return {
        "process": schedule.process,
        "rate": schedule.rate,
        "requests": len(schedule.intended_s),
        "sent": len(sent),
        "intended_per_s": _rounded(_rate(schedule.intended_s)),
        "sent_per_s": _rounded(_rate(sent)),
        "squared_cv_intended": _rounded(variation(schedule.intended_s)),
        "squared_cv_sent": _rounded(variation(sent)),
        "squared_cv_tolerance": [round(value, 3) for value in tolerance(gaps)] if poisson else None,
        "dispatch_error_p99_s": _rounded(percentile(phase.late_s, P99) if phase.late_s else None),
    }


def _rate(times: Sequence[float]) -> float:
    """Return requests per second; 0 for fewer than two, infinite for all at once."""
    took = times[-1] - times[0] if times else 0.0
    return (len(times) - 1) / took if took else math.inf if len(times) > 1 else 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)
