"""What a server reports of its memory is held against the plan, with the log's rounding."""

from __future__ import annotations

from dataclasses import replace

from pytest_vllm_gates.facts.memory_plan import GIB, MemoryPlan, Pool, Serving, Weights
from pytest_vllm_gates.facts.startup import Startup
from pytest_vllm_gates.judge.as_planned import differences, serving

POOL = Pool(100, 10_000, 2.5)
PLAN = MemoryPlan("QwenForCausalLM", "0.32.0", 4096, pool=POOL, low=POOL, high=POOL)
TOLD = {"kv_tokens": 10_000.0, "kv_concurrency": 2.5, "weights_gib": 7.5}


def test_a_twentieth_beside_the_plan_is_still_as_planned() -> None:
    weighed = replace(PLAN, weights=Weights(8 * GIB, int(7.5 * GIB), "counted"))
    assert list(differences(weighed, Startup(figures=TOLD))) == []
    near = {"kv_tokens": 9_600.0, "kv_concurrency": 2.6, "weights_gib": 7.8}
    assert list(differences(weighed, Startup(figures=near))) == []


def test_what_is_further_off_is_told_with_both_figures() -> None:
    weighed = replace(PLAN, weights=Weights(8 * GIB, 6 * GIB, "counted"))
    told = TOLD | {"kv_tokens": 5_000.0, "kv_concurrency": 1.25}
    assert list(differences(weighed, Startup(figures=told))) == [
        "tokens of KV cache: planned 10,000, and vLLM reports 5,000",
        "requests of the longest length at once: planned 2.5, and vLLM reports 1.25",
        "GiB of weights on a device: planned 6, and vLLM reports 7.5",
    ]


def test_what_is_not_told_is_not_beside_the_plan() -> None:
    assert list(differences(PLAN, Startup())) == []


def test_flags_the_plan_does_not_know_are_left_out() -> None:
    flags = {
        "max_model_len": 4096,
        "reasoning_parser": "qwen3",
        "max_num_seqs": "many",
        "kv_cache_dtype": "fp8",
        "speculative_config": {"num_speculative_tokens": 2},
    }
    found = serving(flags, "0.30.0", "cpu")
    assert (found.max_model_len, found.max_num_seqs, found.kv_cache_dtype) == (4096, None, "fp8")
    assert (found.num_speculative_tokens, found.vllm_version, found.device) == (2, "0.30.0", "cpu")


def test_a_version_that_is_not_known_is_the_plans_own() -> None:
    assert serving({}, None, "cuda") == Serving(device="cuda")
