"""A changed start is distinguished from figures that vary a little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.server.startup_check import Startup, as_toml, changes, parsed

BEFORE = Startup(
    {"attention_backend": "FLASH_ATTN", "enforce_eager": "False", "mode": "level: 3"},
    {"kv_tokens": 100_000.0, "weights_gib": 7.5, "spilled_gib": 0.0},
)


def test_a_golden_reads_as_it_was_written() -> None:
    assert parsed(as_toml("Qwen", BEFORE)) == BEFORE


def test_golden_with_text_for_a_number_is_corrupt() -> None:
    with pytest.raises(CorruptGolden, match="cannot be read"):
        parsed(as_toml("Qwen", BEFORE).replace("7.5", "heavy"))


def test_figure_may_change_by_a_twentieth() -> None:
    within = Startup(BEFORE.facts, {**BEFORE.figures, "kv_tokens": 95_000.0})
    assert list(changes(BEFORE, within)) == []
    beyond = Startup(BEFORE.facts, {**BEFORE.figures, "kv_tokens": 105_001.0})
    assert list(changes(BEFORE, beyond)) == ["kv_tokens: 100000, now 105001 (+5%)"]


def test_the_last_rounded_digit_is_not_a_change() -> None:
    small = Startup({}, {"weights_gib": 0.0, "kv_gib": 0.1})
    assert list(changes(small, Startup({}, {"weights_gib": 0.01, "kv_gib": 0.11}))) == []
    assert list(changes(small, Startup({}, {"weights_gib": 0.02, "kv_gib": 0.1}))) == [
        "weights_gib: 0, now 0.02"
    ]


def test_every_change_is_reported() -> None:
    after = Startup(
        {"attention_backend": "TRITON_ATTN", "kernels": "slow", "mode": "level: 3"},
        {"kv_tokens": 50_000.0, "kv_gib": 3.0, "spilled_gib": 1.0},
    )
    assert list(changes(BEFORE, after)) == [
        "attention_backend: FLASH_ATTN, now TRITON_ATTN",
        "enforce_eager: False, now not reported",
        "kernels: not reported, now slow",
        "kv_gib: not reported, now 3",
        "kv_tokens: 100000, now 50000 (-50%)",
        "spilled_gib: 0, now 1",
        "weights_gib: 7.5, now not reported",
    ]


def test_another_decision_is_a_change() -> None:
    runner = "Model Runner V2 requires Triton; using the V1 model runner instead."
    recorded = replace(BEFORE, decisions={"model runner": runner})
    assert parsed(as_toml("Qwen", recorded)) == recorded
    again = replace(BEFORE, decisions={"LoRA kernels": "PunicaWrapperCPU"})
    assert list(changes(recorded, again)) == [
        "LoRA kernels: not reported, now PunicaWrapperCPU",
        f"model runner: {runner}, now not reported",
    ]


def test_golden_without_decisions_is_compared_without_them() -> None:
    again = replace(BEFORE, decisions={"model runner": "V2"})
    assert list(changes(parsed(as_toml("Qwen", BEFORE)), again)) == []
