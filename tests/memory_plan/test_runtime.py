"""The runtime's memory follows the widths, the flags and the version."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.runtime import (
    COMMUNICATION,
    EACH_DOUBLING,
    FUSED_COMMUNICATION,
    GRAPH_BASE,
    GRAPH_EXPERTS,
    GRAPH_LAYER,
    KERNELS,
    KERNELS_ONCE,
    SAMPLER_REST,
    runtime,
)
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Room, Serving
from pytest_vllm_gates.report.memory_plan import as_json, as_text

WIDE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}  # fmt: skip
LARGE = 80 * GIB


def of(config: dict[str, Any] | None = None, **flags: Any) -> Any:
    flags = {"device_memory": LARGE, "vllm_version": "0.19.0", **flags}
    return runtime(shape_of({**WIDE, **(config or {})}), Serving(**flags))


def test_sampler_decides_with_many_sequences_and_words() -> None:
    logits, hidden = 1024 * 128256, 8192 * 4096 * 2
    assert of().activations == int(logits * 14.7 + hidden + SAMPLER_REST)
    assert of({"vocab_size": 256000}).activations > 1.8 * of().activations
    # Devices do not divide the sampler, and before 0.17 it took more than twice as much.
    assert of(tensor_parallel_size=4).activations == of().activations
    assert of(vllm_version="0.16.0").activations > 2.4 * of().activations
    assert of(dtype="float32").activations > of().activations


def test_layers_decide_with_few_words() -> None:
    few = {"vocab_size": 1000}
    one = of(few).activations
    assert one == int(8192 * 2 * (4.25 * 4096 + 3 * 14336))
    assert of(few, tensor_parallel_size=2).activations == int(
        8192 * 2 * (4.25 * 4096 + 1.5 * 14336)
    )
    assert of(few, max_num_batched_tokens=4096).activations == one // 2
    assert of(few, pipeline_parallel_size=2).activations > one


def test_experts_keep_a_workspace_from_0_17_on() -> None:
    experts = {"num_experts": 8, "moe_intermediate_size": 2048, "num_experts_per_tok": 2}
    more = of(experts).activations - of().activations
    assert more == pytest.approx(8192 * 2 * 2 * (4096 + 2048), abs=1)
    assert of(experts, vllm_version="0.16.0").activations == of(vllm_version="0.16.0").activations


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        ({}, KERNELS),
        ({"vllm_version": "0.17.0"}, KERNELS_ONCE),
        ({"tensor_parallel_size": 2}, KERNELS + FUSED_COMMUNICATION),
        ({"tensor_parallel_size": 8}, KERNELS + FUSED_COMMUNICATION + 2 * EACH_DOUBLING),
        ({"tensor_parallel_size": 2, "vllm_version": "0.17.0"}, KERNELS_ONCE + COMMUNICATION),
        ({"tensor_parallel_size": 2, "device_memory": 24 * GIB}, KERNELS + COMMUNICATION),
    ],
)
def test_memory_outside_torch_follows_devices_and_version(flags: dict[str, Any], size: int) -> None:
    found = of(**flags)
    assert found.kernels + found.communication == size


def test_graphs_are_taken_off_from_0_20_on() -> None:
    assert of().graphs == of(vllm_version="0.20.0", enforce_eager=True).graphs == 0
    all_sizes = GRAPH_BASE + 32 * GRAPH_LAYER
    assert of(vllm_version="0.20.0").graphs == all_sizes
    few = of(vllm_version="0.20.0", max_num_seqs=64).graphs
    assert few == GRAPH_BASE + 32 * GRAPH_LAYER // 4
    experts = {"num_experts": 8, "moe_intermediate_size": 64, "num_experts_per_tok": 2}
    assert of(experts, vllm_version="0.20.0").graphs == all_sizes + GRAPH_EXPERTS


def test_interval_contains_the_middle_and_a_tower_widens_it_upwards() -> None:
    plain, seeing = of(), of({"vision_config": {"hidden_size": 1152}})
    assert plain.low < plain.middle < plain.high
    assert seeing.high - seeing.middle > plain.high - plain.middle + 3 * GIB
    assert seeing.middle - seeing.low < plain.middle - plain.low + GIB // 4


@pytest.mark.parametrize(
    ("flags", "tokens", "sequences"),
    [
        ({}, 8192, 1024),
        ({"a100": True}, 2048, 256),
        ({"device_memory": 24 * GIB}, 2048, 256),
        ({"device_memory": 180 * GIB, "vllm_version": "0.32.0"}, 16384, 1024),
        ({"device_memory": 180 * GIB}, 8192, 1024),
    ],
)
def test_batches_are_those_that_vllm_takes_for_the_device(
    flags: dict[str, Any], tokens: int, sequences: int
) -> None:
    given = of(**flags, max_num_batched_tokens=tokens, max_num_seqs=sequences)
    assert of(**flags).activations == given.activations


def test_plan_gives_the_cache_with_its_interval() -> None:
    shape, room = shape_of(WIDE), Room(device_memory=LARGE, utilization=0.9)
    made = plan(shape, Serving(max_model_len=8192, device_memory=LARGE), room)
    assert made.kv_memory_low and made.kv_memory_bytes and made.kv_memory_high
    assert made.kv_memory_low < made.kv_memory_bytes < made.kv_memory_high
    text, document = as_text(made), as_json("m", made)
    low, high = made.kv_memory_low / GIB, made.kv_memory_high / GIB
    assert f"on each device ({low:.2f} to {high:.2f})" in text
    assert document["kv_memory_low_bytes"] == made.kv_memory_low
    assert document["overhead_high_bytes"] == made.overhead_high
    assert "activations and sampler 1.90" in text and "CUDA graphs" in text
    given = plan(shape, Serving(max_model_len=8192), Room(device_memory=LARGE, overhead=GIB))
    assert given.kv_memory_low is given.kv_memory_high is given.overhead_low is None
