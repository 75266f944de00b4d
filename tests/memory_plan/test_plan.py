"""A plan refuses flags that do not fit, by name, and notes which figures are estimates."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import weights
from pytest_vllm_gates.memory_plan.plan import HALF_OF_TWO_DIGITS, allows, plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, MemoryPlan, Pool, Room, Serving

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
WINDOWS = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
LATENT = {
    "model_type": "kimi_linear", "num_attention_heads": 32, "hidden_size": 2304,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "max_position_embeddings": 4096,
    "num_hidden_layers": 1,
}  # fmt: skip

ROTARY = 131072 * 128 * 2
"""The table of the rotary embedding, which every device has."""


def planned(
    config: dict[str, Any], room: Room | None = None, headroom: float = 0.1, **flags: Any
) -> MemoryPlan:
    return plan(shape_of(config), Serving(**flags), room or Room(kv_memory=10 * GIB), headroom)


@pytest.mark.parametrize(
    ("room", "complaint"),
    [
        (Room(kv_memory=GIB, device_memory=GIB), "--kv-memory and --gpu-memory exclude each other"),
        (Room(device_memory=GIB, utilization=0), "--gpu-memory-utilization 0 is not valid"),
        (Room(device_memory=GIB, utilization=1.1), "--gpu-memory-utilization 1.1 is not valid"),
        (Room(kv_memory=0), "--kv-memory of 0 bytes is not valid"),
        (Room(kv_memory=2**50 + 1), "--kv-memory of 1125899906842625 bytes is not valid"),
        (Room(device_memory=-1), "--gpu-memory of -1 bytes is not valid"),
        (Room(device_memory=GIB, overhead=-1), "--overhead of -1 bytes is not valid"),
    ],
)
def test_invalid_room_is_named(room: Room, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        planned(LLAMA, room)


def test_smallest_and_largest_values_are_allowed() -> None:
    room = Room(device_memory=2**50, utilization=1, overhead=0)
    memory_plan = planned(LLAMA, room, headroom=0, drafter_layers=0)
    assert memory_plan.kv_memory_bytes is not None and memory_plan.weights is not None
    assert memory_plan.kv_memory_bytes == 2**50 - memory_plan.weights.bytes_per_device
    assert planned(LLAMA, Room(kv_memory=2**50)).kv_memory_bytes == 2**50
    assert planned(LLAMA, Room(kv_memory=1)).kv_memory_bytes == 1
    (reason, *_) = planned(LLAMA, Room(device_memory=2**50, overhead=2**50)).knobs
    assert reason.endswith("and nothing is left for the cache")


@pytest.mark.parametrize(
    ("config", "flags", "complaint"),
    [
        (LLAMA, {"drafter_layers": -1}, "--drafter-layers -1 is not valid"),
        (LLAMA, {"drafter_layers": 1001}, "--drafter-layers 1001 is not valid"),
        (LLAMA, {"headroom": 1}, "--headroom 1 is not valid"),
        (LLAMA, {"headroom": -0.1}, "--headroom -0.1 is not valid"),
        (
            {**LLAMA, "num_attention_heads": 48, "num_key_value_heads": 6},
            {"tensor_parallel_size": 4},
            "--tensor-parallel-size 4 neither divides nor repeats the model's 6 key-value heads",
        ),
        (
            WINDOWS,
            {"tensor_parallel_size": 2, "decode_context_parallel_size": 2},
            "vLLM does not support it for sliding windows",
        ),
        (
            {**LLAMA, "max_position_embeddings": None},
            {},
            "'max_position_embeddings' is missing, so the context is unknown",
        ),
    ],
)
def test_flags_that_do_not_fit_the_model_are_named(
    config: dict[str, Any], flags: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        planned(config, **flags)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"tensor_parallel_size": 0}, "is not valid"),
        ({"tensor_parallel_size": 3}, "does not divide"),
        ({"pipeline_parallel_size": 33}, "more than the model's 32 layers"),
        ({"max_model_len": -1}, "is not valid"),
        ({"max_model_len": 2**40}, "is not valid"),
        ({"block_size": 7}, "not a multiple of 8"),
        ({"kv_cache_dtype": "fp88"}, "did you mean 'fp8'"),
        ({"kv_cache_dtype": "fp8_ds_mla"}, "only sparse latent attention"),
        ({"dtype": "int3"}, "not known"),
        ({"mamba_ssm_cache_dtype": "int3"}, "not known"),
        ({"decode_context_parallel_size": 2}, "does not divide --tensor-parallel-size"),
        ({"vllm_version": "latest"}, "not a version of vLLM"),
        ({"num_speculative_tokens": -2}, "from 0 to 1000"),
        ({"quantization": "awqq"}, "did you mean"),
    ],
)
def test_out_of_range_flags_are_named(flags: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        planned(LLAMA, **flags)


@pytest.mark.parametrize(
    "flag",
    [
        "tensor-parallel-size", "pipeline-parallel-size", "decode-context-parallel-size",
        "max-model-len", "max-num-batched-tokens", "max-num-seqs", "block-size",
    ],
)  # fmt: skip
def test_out_of_range_count_is_named_by_its_flag(flag: str) -> None:
    with pytest.raises(UserError, match=f"^--{flag} 0 is not valid; from 1 to "):
        planned(LLAMA, None, 0.1, **{flag.replace("-", "_"): 0})


@pytest.mark.parametrize("flag", ["mamba-cache-dtype", "mamba-ssm-cache-dtype"])
def test_unknown_state_type_is_named_by_its_flag(flag: str) -> None:
    with pytest.raises(UserError, match=f"^--{flag} 'int3' is not known\nknown: auto, float16, "):
        planned(LLAMA, None, 0.1, **{flag.replace("-", "_"): "int3"})


def test_key_value_heads_may_be_repeated_over_devices() -> None:
    config = {**LLAMA, "num_key_value_heads": 2}
    assert planned(config, tensor_parallel_size=8).kv_bytes_per_token == 32 * 2 * 128 * 2


def test_undescribed_drafter_needs_drafter_layers() -> None:
    def is_noted(**flags: Any) -> bool:
        return any("pass --drafter-layers" in note for note in planned(LLAMA, **flags).notes)

    assert is_noted(num_speculative_tokens=3)
    assert not is_noted(num_speculative_tokens=3, drafter_layers=1)
    assert not is_noted()


def test_sparse_fp8_cache_note_names_the_kernels() -> None:
    sparse = {
        **LLAMA, "model_type": "glm_moe_dsa", "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "index_topk": 2048, "index_head_dim": 128,
    }  # fmt: skip

    def kernel_notes(config: dict[str, Any], cache_type: str) -> list[str]:
        notes = planned(config, kv_cache_dtype=cache_type).notes
        return [note for note in notes if note.startswith("fp8 in sparse latent attention: 656")]

    (note,) = kernel_notes(sparse, "fp8")
    assert note.endswith("576 with FlashInfer's on Blackwell (--blackwell); planned: fp8_ds_mla")
    assert kernel_notes(sparse, "bfloat16") == kernel_notes(LLAMA, "fp8") == []


def test_a_drafters_layers_are_planned_as_the_model_attends() -> None:
    plain, drafting = planned(LLAMA), planned(LLAMA, num_speculative_tokens=1, drafter_layers=2)
    assert plain.kv_bytes_per_token is not None
    assert drafting.kv_bytes_per_token == plain.kv_bytes_per_token * 34 // 32


def test_batch_guess_is_noted_only_for_recycled_windows() -> None:
    def guessed(config: dict[str, Any], **flags: Any) -> bool:
        return any("max_num_batched_tokens is assumed" in n for n in planned(config, **flags).notes)

    mixed = {**WINDOWS, "layer_types": ["sliding_attention", "full_attention"] * 16}
    chunked = {**LLAMA, "model_type": "llama4_text", "attention_chunk_size": 8192,
               "layer_types": ["chunked_attention", "full_attention"] * 16}  # fmt: skip
    assert guessed(mixed)
    assert not guessed(mixed, device_memory=80 * GIB)
    assert not guessed(mixed, disable_hybrid_kv_cache_manager=True)
    assert not guessed(chunked)


def test_pages_that_cannot_be_unified_are_refused() -> None:
    # The indexer's keys are wider than the latent ones, which cannot be padded.
    linear = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}
    config = {
        **LATENT, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
        "linear_attn_config": {**linear, "kda_layers": [1], "full_attn_layers": [2]},
        "index_topk": 64, "index_head_dim": 1280,
    }  # fmt: skip
    memory_plan = planned(config)
    assert memory_plan.pool is None
    assert memory_plan.refused[0].startswith("vLLM cannot lay out pages of ")


@pytest.mark.parametrize(
    ("tokens", "concurrency", "allowed"),
    [
        (1000, None, True), (2000, None, True), (999, None, False), (2001, None, False),
        (1000, 0.995, True), (1000, 0.99, False), (1000, 2.005, True), (1000, 2.01, False),
        (1000, 1.0 - HALF_OF_TWO_DIGITS, True), (1000, 2.0 + HALF_OF_TWO_DIGITS, True),
    ],
)  # fmt: skip
def test_printed_figures_lie_between_the_least_and_the_most(
    tokens: int, concurrency: float | None, allowed: bool
) -> None:
    memory_plan = MemoryPlan("x", "0.32.0", 1000, low=Pool(1, 1000, 1.0), high=Pool(2, 2000, 2.0))
    assert allows(memory_plan, tokens, concurrency) is allowed
    assert allows(MemoryPlan("x", "0.32.0", 1000, refused=("why",)), tokens, concurrency)


def test_unknown_quantisation_leaves_only_the_weights_unknown() -> None:
    shape = shape_of({**LLAMA, "quantization_config": {"quant_method": "moonshine"}})
    memory_plan = plan(shape, Serving(max_model_len=8192), Room(device_memory=80 * GIB))
    assert (
        memory_plan.weights is None
        and memory_plan.fits is None
        and memory_plan.kv_memory_bytes is None
    )
    assert any("'moonshine' is not known" in note for note in memory_plan.notes)
    assert memory_plan.kv_bytes_per_token == 131072


def test_a_device_is_divided_between_weights_runtime_and_cache() -> None:
    serving = Serving(max_model_len=131072, device_memory=80 * GIB)
    memory_plan = plan(shape_of(LLAMA), serving, Room(device_memory=80 * GIB, utilization=0.9))
    assert (
        memory_plan.fits
        and memory_plan.weights
        and memory_plan.overhead_bytes
        and memory_plan.kv_memory_bytes
    )
    assert (
        memory_plan.kv_memory_bytes
        + memory_plan.weights.bytes_per_device
        + memory_plan.overhead_bytes
        == int(0.9 * 80 * GIB)
    )
    # A server of this kind printed 51.63 GiB, another 56.21.
    assert 50 < memory_plan.kv_memory_bytes / GIB < 58
    assert any("estimate" in note for note in memory_plan.notes)


def test_plan_has_every_figure_of_a_device() -> None:
    room = Room(device_memory=80 * GIB, overhead=4 * GIB, weights=30 * GIB)
    memory_plan = planned(
        LLAMA, room, max_model_len=8192, max_num_batched_tokens=2048, tensor_parallel_size=2,
        pipeline_parallel_size=2,
    )  # fmt: skip
    # The first and the last stage have half of the layers, and the embedding or the head.
    assert memory_plan.weights
    share = memory_plan.weights.bytes_per_device
    assert 30 * GIB // 4 < share - ROTARY < 1.001 * 30 * GIB // 4
    assert (memory_plan.device_bytes, memory_plan.overhead_bytes) == (80 * GIB, 4 * GIB)
    assert memory_plan.kv_memory_bytes == int(0.92 * 80 * GIB) - 4 * GIB - share
    assert memory_plan.max_num_batched_tokens == 2048
    # 16 tokens, four of eight heads, keys and values of 128 in two bytes each.
    layer = 16 * 4 * 2 * 128 * 2
    assert (memory_plan.page_bytes, memory_plan.bytes_per_block) == (layer, 32 * layer)
    # A device has the layers of its stage, 16 of the 32.
    assert memory_plan.kv_bytes_per_token == 16 * layer // 16
    assert memory_plan.state_bytes_per_sequence == 0
    # Each stage has half of the layers, and one block is vLLM's own.
    assert memory_plan.needed_bytes == (8192 // 16 + 1) * 16 * layer
    without_device = planned(
        LLAMA, Room(), max_model_len=8192, tensor_parallel_size=2, pipeline_parallel_size=2
    )
    assert without_device.needed_bytes == memory_plan.needed_bytes, (
        "with or without a device to fit into"
    )


def test_one_stage_also_has_the_drafters_layers() -> None:
    alone = planned(LLAMA, max_model_len=8192).needed_bytes
    with_drafter = planned(
        LLAMA, max_model_len=8192, num_speculative_tokens=1, drafter_layers=1
    ).needed_bytes
    assert alone and with_drafter == alone * 33 // 32


@pytest.mark.parametrize(
    ("version", "share"), [("0.18.1", 0.9), ("0.19.0", 0.92), ("0.32.0", 0.92)]
)
def test_default_utilization_follows_the_version(version: str, share: float) -> None:
    room = Room(device_memory=80 * GIB, overhead=0, weights=0)
    available = planned(LLAMA, room, vllm_version=version).kv_memory_bytes
    assert available == int(share * 80 * GIB) - ROTARY


def test_weights_are_counted_without_any_room() -> None:
    for room in (Room(), Room(kv_memory=GIB)):
        memory_plan = planned(LLAMA, room)
        assert memory_plan.weights and memory_plan.weights.parameters == 8030261248
    assert planned(LLAMA, Room()).kv_memory_bytes is None
    assert planned(LLAMA, Room(weights=GIB)).weights == weights.weights(
        shape_of(LLAMA), Serving(), GIB
    )


def test_unknown_weights_leave_the_other_figures_known() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    memory_plan = planned(config, Room(device_memory=80 * GIB, overhead=GIB))
    assert (memory_plan.device_bytes, memory_plan.overhead_bytes) == (80 * GIB, GIB)
    assert memory_plan.weights is None
    assert any(
        note.startswith("the weights' size is unknown, so the cache's")
        for note in memory_plan.notes
    )
