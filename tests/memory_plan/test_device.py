"""The runtime's memory is estimated from the model's widths and the flags."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.memory_plan.device import estimated
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Serving

WIDE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14335,
    "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 1000,
}  # fmt: skip
# Kernels and graphs take a gibibyte; the communication of several devices takes 1.5 more.
ALONE, TOGETHER = GIB, 5 * GIB // 2


@pytest.mark.parametrize(
    ("config", "flags", "size"),
    [
        ({}, {}, 4096 * (4 * 4096 + 43005) + 8 * 1000 * 8 + ALONE),
        ({}, {"tensor_parallel_size": 2}, 4096 * (4 * 4096 + 21502) + 8 * 8000 + TOGETHER),
        ({}, {"pipeline_parallel_size": 2}, 4096 * (4 * 4096 + 43005) + 8 * 8000 + TOGETHER),
        ({"moe_intermediate_size": 2048, "num_experts_per_tok": 8}, {},
         4096 * (4 * 4096 + 3 * 2048 * 8) + 8 * 8000 + ALONE),
        ({"moe_intermediate_size": 8000}, {}, 4096 * (4 * 4096 + 43005) + 8 * 8000 + ALONE),
        ({"vocab_size": None}, {}, 4096 * (4 * 4096 + 43005) + ALONE),
    ],
)  # fmt: skip
def test_the_runtime_takes_activations_logits_kernels_and_graphs(
    config: dict[str, Any], flags: dict[str, Any], size: int
) -> None:
    serving = Serving(max_num_batched_tokens=2048, max_num_seqs=8, **flags)
    assert estimated(shape_of({**WIDE, **config}), serving) == size


@pytest.mark.parametrize(
    ("device", "sequences"), [(None, 1024), (24 * GIB, 256), (70 * GIB - 1, 256), (70 * GIB, 1024)]
)
def test_a_small_device_has_fewer_sequences(device: int | None, sequences: int) -> None:
    serving = Serving(max_num_batched_tokens=2048, device_memory=device)
    without = estimated(shape_of({**WIDE, "vocab_size": None}), serving)
    assert estimated(shape_of(WIDE), serving) - without == sequences * 1000 * 8
