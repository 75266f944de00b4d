"""Tables of rotary embeddings are counted with the weights of a device."""

from __future__ import annotations

from typing import Any

import pytest

from memory_plan.model_configs import DEEPSEEK_V3, LLAMA_8B
from pytest_vllm_gates.memory_plan.rotary import bytes_of
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Serving
from pytest_vllm_gates.memory_plan.weights import weights

POSITIONS, HEAD = 131072, 128
TABLE = POSITIONS * HEAD * 2


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, TABLE),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, TABLE),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 8 * TABLE),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0,
                           "original_max_position_embeddings": 32768}}, TABLE),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, 2 * TABLE),
        ({"rope_local_base_freq": 10000}, 2 * TABLE),
        ({"partial_rotary_factor": 0.25}, TABLE // 4),
        ({"max_position_embeddings": None}, 0),
        ({"rope_scaling": {"rope_type": "linear", "factor": "8"}}, TABLE),
        ({"rope_scaling": {"rope_type": "linear", "factor": 1e300}}, 2**28 * HEAD * 2),
    ],
)  # fmt: skip
def test_table_has_the_positions_it_may_meet(changes: dict[str, Any], size: int) -> None:
    assert bytes_of(shape_of({**LLAMA_8B, **changes}), Serving()) == size


def test_table_is_of_the_models_type() -> None:
    assert bytes_of(shape_of(LLAMA_8B), Serving(dtype="float32")) == 2 * TABLE


def test_latent_attention_rotates_its_own_part() -> None:
    shape = shape_of({**DEEPSEEK_V3, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})
    assert bytes_of(shape, Serving()) == 4096 * 64 * 2


def test_each_device_has_the_whole_table() -> None:
    def on_device(devices: int, **changes: Any) -> int:
        serving = Serving(tensor_parallel_size=devices)
        size = weights(shape_of({**LLAMA_8B, **changes}), serving, None)
        assert size
        return size.bytes_per_device

    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert on_device(4, **scaled) - on_device(4) == TABLE
    from_files = weights(shape_of(LLAMA_8B), Serving(), 4000)
    assert from_files and from_files.bytes_per_device == 4000 + TABLE
