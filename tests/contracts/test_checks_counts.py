"""Metrics whose counts or times differ from the answers are named; those that agree are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_vllm_gates.contracts import checks_counts
from pytest_vllm_gates.contracts.checks_counts import (
    E2E,
    ENDED,
    GENERATED,
    HITS,
    PROMPTS,
    QUERIES,
    TTFT,
    CountedRequest,
    CountedTraffic,
    Series,
)

REQUESTS = [
    CountedRequest("ids", {}, 257, 257, 7, "length", 0.5),
    CountedRequest("again", {}, 257, 257, 7, "length", 0.4),
    CountedRequest("chat", {}, None, 20, 4, "tool_calls", 0.3),
]
BEFORE = {Series(PROMPTS): 100.0, Series(ENDED, "stop"): 3.0, Series(f"{E2E}_sum"): 9.0}
RISES = {
    Series(PROMPTS): 534,
    Series(GENERATED): 18,
    Series(ENDED, "length"): 2,
    Series(ENDED, "stop"): 1,
    Series(ENDED, "abort"): 0,
    Series(f"{TTFT}_count"): 3,
    Series(f"{E2E}_count"): 3,
    Series(f"{TTFT}_sum"): 0.2,
    Series(f"{E2E}_sum"): 1.1,
    Series("vllm:request_prompt_tokens_count"): 3,
    Series("vllm:request_prompt_tokens_sum"): 534,
    Series("vllm:request_generation_tokens_sum"): 18,
    Series(QUERIES): 534,
    Series(HITS): 128,
}


def traffic(rises: dict[Series, float] | None = None, **more: Any) -> CountedTraffic:
    changed = {**RISES, **(rises or {})}
    after = {series: BEFORE.get(series, 0.0) + rise for series, rise in changed.items()}
    return replace(
        CountedTraffic(
            REQUESTS, BEFORE, after, caches_prefixes=True, block_tokens=128, repeated="again"
        ),
        **more,
    )


def sentences(of: CountedTraffic) -> list[str]:
    checks = (checks_counts.miscounted, checks_counts.mistimed, checks_counts.uncached)
    return [sentence for check in checks for _, sentence in check(of)]


def test_metrics_that_agree_have_no_fault() -> None:
    assert sentences(traffic()) == []
    assert list(checks_counts.misread(REQUESTS)) == []


@pytest.mark.parametrize(
    ("series", "rise", "sentence"),
    [
        (Series(GENERATED), 36, f"{GENERATED} rose by 36, and the 3 answers make 18"),
        (Series(GENERATED), 0, f"{GENERATED} rose by 0, and the 3 answers make 18"),
        (Series(PROMPTS), 277, f"{PROMPTS} rose by 277, and the 3 answers make 534"),
        (
            Series(ENDED, "length"), 3,
            f'{ENDED}{{finished_reason="length"}} rose by 3, and the 3 answers make 2',
        ),
        (Series(f"{TTFT}_count"), 18, f"{TTFT}_count rose by 18, and the 3 answers make 3"),
        (
            Series("vllm:request_generation_tokens_sum"), 21,
            "vllm:request_generation_tokens_sum rose by 21, and the 3 answers make 18",
        ),
        (Series(GENERATED), float("nan"), f"{GENERATED} rose by nan, and the 3 answers make 18"),
    ],
)  # fmt: skip
def test_series_with_another_count_is_named(series: Series, rise: float, sentence: str) -> None:
    assert sentences(traffic({series: rise})) == [sentence]


@pytest.mark.parametrize(
    ("series", "rise", "words"),
    [
        (Series(f"{E2E}_sum"), 1100.0, "rose by 1100, and the requests took 1.2 s altogether"),
        (Series(f"{E2E}_sum"), 0.0011, "it is in another unit, or times something else"),
        (Series(f"{TTFT}_sum"), 200.0, "rose by 200, and the requests took 1.2 s altogether"),
        (Series(f"{TTFT}_sum"), 1.15, "first tokens took 1.15 s altogether, and whole answers 1.1"),
    ],
)
def test_latency_in_another_unit_is_named(series: Series, rise: float, words: str) -> None:
    assert words in sentences(traffic({series: rise}))[0]


def test_series_that_a_server_lacks_is_not_judged() -> None:
    lacking = traffic()
    kept = {series: value for series, value in lacking.after.items() if series.name != PROMPTS}
    assert sentences(replace(lacking, after=kept)) == []


@pytest.mark.parametrize(
    ("hits", "more", "words"),
    [
        (0, {}, "though a prompt of 257 tokens was sent twice"),
        (127, {}, "though a prompt of 257 tokens was sent twice"),
        (535, {}, "more was found than looked for"),
        (128, {"caches_prefixes": False}, "reports that it caches no prefixes"),
    ],
)
def test_hits_of_the_prefix_cache_are_those_of_the_prompt(
    hits: int, more: dict[str, Any], words: str
) -> None:
    (sentence,) = sentences(traffic({Series(HITS): hits}, **more))
    assert words in sentence


@pytest.mark.parametrize(
    "more",
    [
        {"caches_prefixes": False},
        {"caches_prefixes": None},
        {"block_tokens": 512},
        {"block_tokens": None},
        {"repeated": None},
    ],
)
def test_impossible_hits_are_not_expected(more: dict[str, Any]) -> None:
    assert sentences(traffic({Series(HITS): 0}, **more)) == []


def test_prompt_tokens_are_the_ids_that_were_sent() -> None:
    wrong = [replace(REQUESTS[0], prompt_tokens=258), *REQUESTS[1:]]
    assert [(request.name, sentence) for request, sentence in checks_counts.misread(wrong)] == [
        ("ids", "usage.prompt_tokens is 258, and 257 ids were sent")
    ]
