"""Startup facts and figures are read by patterns with one group each."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pytest_vllm_gates.server.startup_check import GIB, Pattern, Startup, patterns


def test_the_shipped_patterns_can_be_read() -> None:
    shipped = patterns()
    names = [fact.name for fact in (*shipped.facts, *shipped.figures)]
    assert len(names) == len(set(names))
    assert {"kv_concurrency", "kv_concurrency_tokens", "kv_gib"} <= set(names)


@pytest.mark.parametrize("pattern", ["no group", "(two) (groups)"])
def test_a_pattern_has_one_group(pattern: str) -> None:
    with pytest.raises(ValidationError, match="has not one group, the value"):
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
