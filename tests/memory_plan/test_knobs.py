"""The suggested flag follows the limit of the plan."""

from __future__ import annotations

from typing import Any

from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Room, Serving

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
LATENT = {
    **LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64,
}  # fmt: skip


def suggestions(config: dict[str, Any], room: Room, **flags: Any) -> list[str]:
    """Return the flags that the knobs name, without their explanations."""
    return [knob.split(":")[0] for knob in plan(shape_of(config), Serving(**flags), room).knobs]


def test_small_cache_suggests_more_memory_and_smaller_tokens() -> None:
    assert suggestions(LLAMA, Room(kv_memory=GIB)) == [
        "--max-model-len 8176", "--kv-cache-dtype fp8", "--tensor-parallel-size 2",
    ]  # fmt: skip
    assert suggestions(LLAMA, Room(kv_memory=GIB), kv_cache_dtype="fp8")[1:] == [
        "--tensor-parallel-size 2",
    ]


def test_known_device_memory_adds_knobs() -> None:
    room = Room(device_memory=24 * GIB, overhead=0)
    assert suggestions(LLAMA, room)[-2:] == ["--gpu-memory-utilization", "--max-num-batched-tokens"]


def test_a_cache_with_room_to_spare_needs_no_knob() -> None:
    assert suggestions(LLAMA, Room(kv_memory=100 * GIB)) == []
    assert suggestions(LLAMA, Room(kv_memory=40 * GIB)) == [], "two requests at once are enough"


def test_one_request_at_once_is_too_few() -> None:
    # 131,072 tokens take 16 GiB.
    for cache_type in ("auto", "bfloat16", "float16"):
        knobs = suggestions(LLAMA, Room(kv_memory=20 * GIB), kv_cache_dtype=cache_type)
        assert knobs[0] == "--kv-cache-dtype fp8"


def test_latent_attention_is_shared_by_tokens_and_not_by_heads() -> None:
    assert suggestions(LATENT, Room(kv_memory=GIB))[1:] == [
        "--kv-cache-dtype fp8", "--decode-context-parallel-size",
    ]  # fmt: skip


def test_more_devices_than_heads_are_reported_as_waste() -> None:
    assert suggestions(LLAMA, Room(kv_memory=100 * GIB), tensor_parallel_size=16) == [
        "--tensor-parallel-size 8",
    ]
    assert suggestions(LLAMA, Room(kv_memory=GIB), tensor_parallel_size=16)[2:] == [
        "--tensor-parallel-size 8",
    ]
    assert suggestions(LLAMA, Room(kv_memory=GIB), tensor_parallel_size=8)[2:] == []
    assert suggestions(LLAMA, Room(kv_memory=GIB), tensor_parallel_size=4)[2:] == [
        "--tensor-parallel-size 8",
    ]


def test_weights_that_fill_the_device_are_named() -> None:
    room = Room(device_memory=16 * GIB)
    knobs = plan(shape_of(LLAMA), Serving(), room).knobs
    assert knobs[0] == (
        "the weights use 14.99 GiB of each device, and nothing is left for the cache"
    )
    assert knobs[1].startswith("--tensor-parallel-size 2:")
    assert knobs[2].startswith("a quantised checkpoint: fp8 halves the weights")


def test_weights_that_leave_no_room_are_the_knob() -> None:
    room = Room(device_memory=16 * GIB)
    memory_plan = plan(shape_of(LLAMA), Serving(device_memory=16 * GIB), room)
    assert memory_plan.fits is False
    assert "nothing is left for the cache" in memory_plan.knobs[0]


def test_zero_bytes_leave_no_memory_and_one_byte_is_too_small() -> None:
    for cache_bytes, prefix in ((0, "the weights use"), (1, "--kv-cache-dtype fp8")):
        room = Room(device_memory=100, utilization=1, overhead=100 - cache_bytes, weights=0)
        shape = shape_of({**LLAMA, "max_position_embeddings": None})  # no table of sines
        knob, *_ = plan(shape, Serving(max_model_len=131072), room).knobs
        assert knob.startswith(prefix)
