"""A server's reported memory is compared with the plan, with the log's rounding."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.memory_plan.fit import differences, serving, started
from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, MemoryPlan, Pool, Room, Serving, Weights
from pytest_vllm_gates.server import startup
from pytest_vllm_gates.server.startup_check import Startup

HEALTHY = Path(__file__).parent.parent / "signatures" / "healthy"
CHECKPOINTS = miniatures.CHECKPOINTS
POOL = Pool(100, 10_000, 2.5)
PLAN = MemoryPlan("QwenForCausalLM", "0.32.0", 4096, pool=POOL, low=POOL, high=POOL)
REPORTED = {"kv_tokens": 10_000.0, "kv_concurrency": 2.5, "weights_gib": 7.5}


@pytest.mark.parametrize(
    ("log", "checkpoint", "tokens"),
    [
        ("gpu-h100-qwen3.5-0.32.log", "qwen3.5", 123_141_090),
        ("gpu-h100-deepseek-0.32-eager.log", "deepseek-v3.1", 33_791_392),
    ],
)
def test_a_real_gpus_memory_is_as_planned(log: str, checkpoint: str, tokens: int) -> None:
    """Two boots on an H100: the cache to the token that its printed memory allows."""
    reported = startup.read((HEALTHY / log).read_text())
    assert reported.kv_bytes
    config = json.loads((CHECKPOINTS / checkpoint / "config.json").read_text())
    flags = {"max_model_len": 4096, "max_num_seqs": 8, "gpu_memory_utilization": 0.92}
    room = Room(kv_memory=reported.kv_bytes)
    planned = plan(shape_of(config), serving(flags, "0.32.0", "cuda"), room)
    assert planned.low
    assert planned.high
    assert planned.low.tokens <= tokens <= planned.high.tokens
    assert list(differences(planned, reported)) == []
    halved = replace(reported, figures={**reported.figures, "kv_tokens": tokens / 2})
    assert len(list(differences(planned, halved))) == 1


@pytest.mark.parametrize(
    ("log", "tokens"),
    [("cpu-qwen3.5-0.32.log", 1_315_779), ("cpu-qwen3.5-0.32-avx2.log", 1_525_201)],
)
def test_cache_on_a_cpu_is_as_its_processor_keeps_states(log: str, tokens: int) -> None:
    """Two boots of one checkpoint: a processor with AVX-512 BF16, and one with AVX2 alone."""
    reported = startup.read((HEALTHY / log).read_text())
    assert reported.figures["kv_tokens"] == tokens
    config = json.loads((CHECKPOINTS / "qwen3.5" / "config.json").read_text())
    flags = {"max_model_len": 4096, "max_num_seqs": 8}
    room = Room(kv_memory=reported.kv_bytes)
    planned = plan(shape_of(config), started(flags, "0.32.0", reported), room)
    assert list(differences(planned, reported)) == []


def test_weights_are_compared_with_the_log_rounding() -> None:
    small = replace(PLAN, weights=Weights(0, int(0.002 * GIB), "counted"))
    for weights_gib, expected in ((0.0, []), (0.02, []), (0.05, ["GiB of weights on a device"])):
        messages = list(differences(small, Startup(figures={"weights_gib": weights_gib})))
        assert [message.partition(":")[0] for message in messages] == expected


def test_deviation_of_a_twentieth_is_accepted() -> None:
    weighed = replace(PLAN, weights=Weights(8 * GIB, int(7.5 * GIB), "counted"))
    assert list(differences(weighed, Startup(figures=REPORTED))) == []
    reported = {"kv_tokens": 9_600.0, "kv_concurrency": 2.6, "weights_gib": 7.8}
    assert list(differences(weighed, Startup(figures=reported))) == []


def test_larger_deviation_is_reported_with_both_figures() -> None:
    weighed = replace(PLAN, weights=Weights(8 * GIB, 6 * GIB, "counted"))
    reported = REPORTED | {"kv_tokens": 5_000.0, "kv_concurrency": 1.25}
    assert list(differences(weighed, Startup(figures=reported))) == [
        "tokens of KV cache: planned 10,000, but vLLM reports 5,000",
        "requests of the longest length at once: planned 2.5, but vLLM reports 1.25",
        "GiB of weights on a device: planned 6, but vLLM reports 7.5",
    ]


def test_unreported_figures_are_not_compared() -> None:
    assert list(differences(PLAN, Startup())) == []


def test_flags_the_plan_does_not_know_are_left_out() -> None:
    flags = {
        "max_model_len": 4096,
        "reasoning_parser": "qwen3",
        "max_num_seqs": "many",
        "kv_cache_dtype": "fp8",
        "speculative_config": {"num_speculative_tokens": 2},
    }
    known_flags = serving(flags, "0.30.0", "cpu")
    assert (known_flags.max_model_len, known_flags.max_num_seqs, known_flags.kv_cache_dtype) == (
        4096,
        None,
        "fp8",
    )
    assert (known_flags.num_speculative_tokens, known_flags.vllm_version, known_flags.device) == (
        2,
        "0.30.0",
        "cpu",
    )


def test_unknown_version_is_the_default_version() -> None:
    assert serving({}, None, "cuda") == Serving(device="cuda")
