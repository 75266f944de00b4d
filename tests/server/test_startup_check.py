"""Startup facts and figures are read by patterns with one group each."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pytest_vllm_gates.server.startup_check import GIB, Pattern, Startup, changes, patterns


def test_the_shipped_patterns_can_be_read() -> None:
    shipped = patterns()
    names = [fact.name for fact in (*shipped.facts, *shipped.figures)]
    assert len(names) == len(set(names))
    assert {"kv_concurrency", "kv_concurrency_tokens", "kv_gib"} <= set(names)


@pytest.mark.parametrize("pattern", ["no group", "(two) (groups)"])
def test_a_pattern_has_one_group(pattern: str) -> None:
    with pytest.raises(ValidationError, match="must have exactly one group, the value"):
        Pattern(name="x", patterns=("(one)", pattern))


def test_concurrency_scales_to_shorter_requests() -> None:
    startup = Startup(figures={"kv_concurrency": 2.5, "kv_concurrency_tokens": 4000.0})
    assert startup.concurrency_at(1000) == 10
    assert Startup(figures={"kv_concurrency": 2.5}).concurrency_at(1000) is None
    assert Startup(figures={"kv_concurrency_tokens": 4000.0}).concurrency_at(1000) is None


def test_the_caches_memory_is_in_bytes() -> None:
    assert Startup(figures={"kv_gib": 1.5}).kv_bytes == 3 * GIB // 2
    assert Startup(figures={"kv_gib": 0.0}).kv_bytes == 0
    assert Startup().kv_bytes is None


def test_startup_is_recorded_as_evidence() -> None:
    startup = Startup({"mode": "eager"}, {"kv_gib": 1.5}, {"block_size": "16"})
    assert startup.as_evidence() == {
        "mode": "eager", "kv_gib": 1.5, "cache_config": {"block_size": "16"},
    }  # fmt: skip


def test_cache_of_another_processor_is_not_a_change() -> None:
    figures = {"kv_tokens": 1000.0, "kv_gib": 1.0}
    recorded = Startup({"device": "cpu", "cpu_ssm_cache_dtype": "float32"}, figures)
    elsewhere = Startup({"device": "cpu"}, {**figures, "kv_tokens": 1200.0})
    assert list(changes(recorded, elsewhere)) == []
    assert list(changes(recorded, Startup(elsewhere.facts, {**figures, "kv_gib": 2.0}))) == [
        "kv_gib: 1, now 2 (+100%)"
    ]


def test_smaller_cache_on_the_same_processor_is_a_change() -> None:
    recorded = Startup({"cpu_ssm_cache_dtype": "float32"}, {"kv_tokens": 1000.0})
    current = Startup({"cpu_ssm_cache_dtype": "float32"}, {"kv_tokens": 800.0})
    assert list(changes(recorded, current)) == ["kv_tokens: 1000, now 800 (-20%)"]
