"""Compares a server's metrics with the requests that were sent: sums, counts and units."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROMPTS = "vllm:prompt_tokens_total"
GENERATED = "vllm:generation_tokens_total"
ENDED = "vllm:request_success_total"
QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
TTFT = "vllm:time_to_first_token_seconds"
E2E = "vllm:e2e_request_latency_seconds"
PROMPT_LENGTHS = "vllm:request_prompt_tokens"
ANSWER_LENGTHS = "vllm:request_generation_tokens"
LENGTH, STOP = "length", "stop"
LEAST_OF_LATENCY = 0.02
"""The share of the client's time that the server must report: less means another unit."""
MOST_OF_LATENCY = 1.05
CLOCK_S = 0.05
"""The largest difference of client's and server's clocks over a request."""


@dataclass(frozen=True)
class CountedRequest:
    """One answered request, counted by its client."""

    name: str
    body: dict[str, Any]
    prompt_ids: int | None
    """Tokens of the prompt that was sent as ids, None if it was sent as text."""
    prompt_tokens: int
    """The value in the answer's `usage`."""
    completion_tokens: int
    finish_reason: str
    seconds: float
    """From sending to the end of the answer."""


class Series(NamedTuple):
    """A series of samples, summed over engines; `reason` is a `finished_reason`."""

    name: str
    reason: str = ""

    @property
    def shown(self) -> str:
        """The series in PromQL."""
        return f'{self.name}{{finished_reason="{self.reason}"}}' if self.reason else self.name


@dataclass(frozen=True)
class CountedTraffic:
    """Requests, and every series before and after them. A missing series is not judged."""

    requests: Sequence[CountedRequest]
    before: Mapping[Series, float]
    after: Mapping[Series, float]
    caches_prefixes: bool | None = None
    """Whether the server reports prefix caching; None if it does not report it."""
    block_tokens: int | None = None
    """Tokens of a block of the prefix cache."""
    repeated: str | None = None
    """The request whose prompt was sent before."""

    def rise(self, series: Series) -> float | None:
        """Return the rise of a series, None if the server does not have it."""
        if series not in self.after:
            return None
        return self.after[series] - self.before.get(series, 0.0)


def counts(requests: Sequence[CountedRequest]) -> dict[Series, int]:
    """Return the expected rise of each series for these requests."""
    prompts = sum(request.prompt_tokens for request in requests)
    generated = sum(request.completion_tokens for request in requests)
    ends = Counter(
        LENGTH if request.finish_reason == LENGTH else STOP for request in requests
    )  # an answer with a call counts like any other
    return {
        Series(PROMPTS): prompts,
        Series(GENERATED): generated,
        **{Series(ENDED, reason): ends[reason] for reason in (LENGTH, STOP)},
        **{Series(f"{name}_count"): len(requests) for name in (TTFT, E2E, PROMPT_LENGTHS)},
        Series(f"{PROMPT_LENGTHS}_sum"): prompts,
        Series(f"{ANSWER_LENGTHS}_sum"): generated,
    }


def miscounted(traffic: CountedTraffic) -> Iterator[tuple[Series, str]]:
    """Yield each series whose count differs from the answers, with a sentence."""
    for series, due in counts(traffic.requests).items():
        rise = traffic.rise(series)
        if rise is not None and rise != due:
            yield (
                series,
                f"{series.shown} rose by {rise:g}, and the {len(traffic.requests)} answers "
                f"make {due}",
            )


def mistimed(traffic: CountedTraffic) -> Iterator[tuple[Series, str]]:
    """Yield each latency that cannot be in seconds, with a sentence."""
    seconds = sum(request.seconds for request in traffic.requests)
    most = seconds * MOST_OF_LATENCY + CLOCK_S * len(traffic.requests)
    for name, least in ((E2E, seconds * LEAST_OF_LATENCY), (TTFT, 0.0)):
        series = Series(f"{name}_sum")
        rise = traffic.rise(series)
        if rise is not None and not (least < rise <= most):
            yield (
                series,
                f"{series.shown} rose by {rise:.4g}, and the requests took {seconds:.4g} s "
                "altogether: it is in another unit, or times something else",
            )
    first, whole = traffic.rise(Series(f"{TTFT}_sum")), traffic.rise(Series(f"{E2E}_sum"))
    if first is not None and whole is not None and first > whole:
        yield (
            Series(f"{TTFT}_sum"),
            f"first tokens took {first:.4g} s altogether, and whole answers {whole:.4g} s",
        )


def misread(requests: Sequence[CountedRequest]) -> Iterator[tuple[CountedRequest, str]]:
    """Yield each request whose `prompt_tokens` are not the ids that were sent."""
    for request in requests:
        if request.prompt_ids is not None and request.prompt_tokens != request.prompt_ids:
            yield (
                request,
                f"usage.prompt_tokens is {request.prompt_tokens}, and {request.prompt_ids} ids "
                "were sent",
            )


def uncached(traffic: CountedTraffic) -> Iterator[tuple[Series, str]]:
    """Yield the faults of the prefix cache's hits after one prompt was sent twice."""
    hits, queries = traffic.rise(Series(HITS)), traffic.rise(Series(QUERIES))
    if hits is None or traffic.repeated is None:
        return
    if queries is not None and hits > queries:
        yield (
            Series(HITS),
            f"{HITS} rose by {hits:g} and {QUERIES} by {queries:g}: more was found than looked for",
        )
    (again,) = (request for request in traffic.requests if request.name == traffic.repeated)
    whole = traffic.block_tokens is not None and again.prompt_tokens > traffic.block_tokens
    if traffic.caches_prefixes and whole and hits < (traffic.block_tokens or 0):
        yield (
            Series(HITS),
            f"{HITS} rose by {hits:g} though a prompt of {again.prompt_tokens} tokens was sent "
            f"twice and the server reports that it caches prefixes, in blocks of "
            f"{traffic.block_tokens}",
        )
    if traffic.caches_prefixes is False and hits:
        yield (
            Series(HITS),
            f"{HITS} rose by {hits:g}, and the server reports that it caches no prefixes",
        )
