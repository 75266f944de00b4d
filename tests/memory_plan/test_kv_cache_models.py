"""Plans of real models, against figures that vLLM's sources and servers give."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.kv_cache import stages
from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, CacheKind, MemoryPlan, Room, Serving

MODELS: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "kv_cache_models.toml").read_text(encoding="utf-8")
)


def planned(model: str, gib: float | None = 10, **flags: Any) -> MemoryPlan:
    serving = Serving(**{"max_model_len": 32768, **flags})
    room = Room(kv_memory=None if gib is None else int(gib * GIB))
    return plan(shape_of(MODELS[model]), serving, room)


@pytest.mark.parametrize(
    ("model", "flags", "block"),
    [
        ("qwen3-5-27b", {}, 784),
        ("qwen3-5-27b", {"kv_cache_dtype": "fp8"}, 1568),
        ("qwen3-5-27b", {"num_speculative_tokens": 1}, 800),
        ("qwen3-5-27b", {"num_speculative_tokens": 3, "kv_cache_dtype": "fp8"}, 1600),
        ("qwen3-5-27b", {"mamba_ssm_cache_dtype": "bfloat16"}, 400),
        ("qwen3-5-35b-a3b", {}, 1056),
        ("qwen3-5-35b-a3b", {"kv_cache_dtype": "fp8"}, 2096),
        ("qwen3-5-122b-a10b", {"kv_cache_dtype": "fp8"}, 4176),
        ("qwen3-5-2b", {}, 544),
        ("qwen3-5-2b", {"device": "cpu"}, 640),
        ("qwen3-5-9b", {}, 528),
        ("falcon-h1-3b", {}, 2080),
        ("granite-4-h-small", {}, 528),
        ("nemotron-3-nano-30b", {"kv_cache_dtype": "fp8"}, 4176),
        ("deepseek-v3", {}, 64),
        ("llama-3-1-8b", {}, 16),
        ("llama-3-1-8b", {"device": "cpu"}, 128),
        ("llama-3-1-8b", {"block_size": 32}, 32),
    ],
)
def test_block_sizes_are_those_vllm_logs(model: str, flags: dict[str, Any], block: int) -> None:
    assert planned(model, **flags).block_size == block


@pytest.mark.parametrize(
    ("model", "flags", "cost"),
    [
        ("llama-3-1-8b", {}, 131072),
        ("llama-3-1-8b", {"tensor_parallel_size": 8}, 16384),
        ("llama-3-1-8b", {"tensor_parallel_size": 16}, 16384),
        ("llama-3-1-8b", {"kv_cache_dtype": "fp8"}, 65536),
        ("deepseek-v3", {}, 61 * 1152),
        ("deepseek-v3", {"tensor_parallel_size": 8}, 61 * 1152),
        ("deepseek-v3", {"kv_cache_dtype": "fp8"}, 61 * 576),
        ("deepseek-v3", {"num_speculative_tokens": 1}, 62 * 1152),
        ("deepseek-v3", {"tensor_parallel_size": 8, "decode_context_parallel_size": 8}, 8784),
        ("glm-5-1", {}, 78 * (1152 + 132)),
        ("glm-5-1", {"kv_cache_dtype": "fp8"}, 78 * (656 + 132)),
        ("glm-5-1", {"kv_cache_dtype": "fp8_e4m3"}, 78 * (576 + 132)),
        ("glm-5-1", {"kv_cache_dtype": "fp8_e4m3", "vllm_version": "0.20.2"}, 78 * (656 + 132)),
        ("glm-5-1", {"blackwell": True}, 78 * (576 + 132)),
        ("glm-5-1", {"vllm_version": "0.11.0"}, 78 * (656 + 132)),
        ("glm-5-2", {}, 78 * 1152 + 21 * 132),
        ("glm-5-2", {"num_speculative_tokens": 1}, 79 * 1152 + 22 * 132),
    ],
)
def test_a_token_costs_its_layers_bytes(model: str, flags: dict[str, Any], cost: int) -> None:
    assert planned(model, **flags).kv_bytes_per_token == cost


def test_a_drafting_layer_widens_the_groups_of_a_hybrid() -> None:
    without, drafting = planned("qwen3-5-27b"), planned("qwen3-5-27b", num_speculative_tokens=1)
    assert (without.group_size, len(without.groups)) == (16, 4)
    assert (drafting.group_size, len(drafting.groups)) == (17, 4)


def test_the_largest_context_is_the_one_vllm_proposes() -> None:
    # An L40S refused 131,072 tokens with 7.04 GiB: "8.18 GiB KV cache is needed", "112896".
    made = planned("qwen3-5-27b", 7.04, max_model_len=131072, vllm_version="0.26.0")
    assert made.fits is False
    assert made.needed_bytes is not None
    assert round(made.needed_bytes / GIB, 2) == 8.18
    assert made.largest_context == 112896
    assert any("--max-model-len 112896" in knob for knob in made.knobs)


@pytest.mark.parametrize(
    ("model", "gib", "flags", "needed", "largest"),
    [
        (
            "qwen3-5-27b",
            9.28,
            {
                "max_model_len": 262144,
                "kv_cache_dtype": "fp8",
                "num_speculative_tokens": 3,
                "enable_prefix_caching": True,
                "vllm_version": "0.26.0",
            },
            9.29,
            260800,
        ),
        ("qwen3-8b", 4.50, {"max_model_len": 40960, "vllm_version": "0.11.0"}, 5.62, 32768),
    ],
)
def test_a_refused_boot_names_its_needed_and_available_memory(
    model: str, gib: float, flags: dict[str, Any], needed: float, largest: int
) -> None:
    made = planned(model, gib, **flags)
    assert not made.fits
    assert made.needed_bytes is not None
    assert round(made.needed_bytes / GIB, 2) == needed
    assert made.largest_context == largest


def test_printed_tokens_depend_on_the_version_not_the_pool() -> None:
    old = planned("gemma-3-27b", vllm_version="0.20.1", max_num_batched_tokens=8192)
    new = planned("gemma-3-27b", vllm_version="0.20.2", max_num_batched_tokens=8192)
    assert old.pool and new.pool
    assert old.pool.num_blocks == new.pool.num_blocks
    assert old.pool.concurrency == new.pool.concurrency
    assert new.pool.tokens > 2 * old.pool.tokens
    assert any("one of 7 groups" in note for note in old.notes)
    assert any("concurrency times context" in note for note in new.notes)


def test_windows_make_room_for_every_batch_in_flight() -> None:
    sizes = [
        planned("gemma-3-27b", max_num_batched_tokens=2048, **flags).groups[1].blocks_per_request
        for flags in (
            {"vllm_version": "0.25.1"},
            {"vllm_version": "0.26.0"},
            {"vllm_version": "0.26.0", "async_scheduling": False},
        )
    ]
    # 1,023 tokens of window, and one batch or two, in blocks of 16, and one for a crooked start.
    assert sizes == [193, 321, 193]


def test_disabled_hybrid_manager_keeps_full_windows() -> None:
    made = planned("gemma-3-27b", disable_hybrid_kv_cache_manager=True)
    assert len(made.groups) == 1
    assert made.kv_bytes_per_token == 62 * 2 * 16 * 128 * 2


def test_versions_without_hybrid_manager_keep_full_windows() -> None:
    assert len(planned("gemma-3-27b", vllm_version="0.9.0").groups) == 1
    assert len(planned("gemma-3-27b", vllm_version="0.9.1").groups) == 7


def test_guessed_batch_is_noted() -> None:
    assert any("max_num_batched_tokens" in note for note in planned("gemma-3-27b").notes)
    assert not any("max_num_batched" in note for note in planned("llama-3-1-8b").notes)


def test_pipeline_stages_are_vllms_and_the_fullest_counts() -> None:
    assert [len(stage) for stage in stages(61, 4)] == [15, 15, 16, 15]
    assert [len(stage) for stage in stages(32, 2)] == [16, 16]
    assert stages(62, 4) == [range(15), range(15, 31), range(31, 47), range(47, 62)]
    memory_plan, two = planned("llama-3-1-8b"), planned("llama-3-1-8b", pipeline_parallel_size=2)
    assert memory_plan.pool and two.pool
    assert two.pool.num_blocks == 2 * memory_plan.pool.num_blocks


def test_chunked_attention_is_kept_whole() -> None:
    llama4 = {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text", "num_hidden_layers": 48, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 5120,
            "attention_chunk_size": 8192,
        },
    }  # fmt: skip
    shape = shape_of(llama4)
    made = plan(shape, Serving(max_model_len=8192, tensor_parallel_size=8), Room(kv_memory=GIB))
    assert made.layers == {"chunked attention": 36, "full attention": 12}
    assert made.kv_bytes_per_token == 48 * 2 * 128 * 2


def test_a_checkpoint_that_was_calibrated_for_fp8_keeps_fp8() -> None:
    plain = MODELS["llama-3-1-8b"]
    for quantisation in (
        {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
        {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}},
        {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
    ):
        shape = shape_of({**plain, "quantization_config": quantisation})
        made = plan(shape, Serving(max_model_len=4096), Room(kv_memory=GIB))
        assert made.kv_bytes_per_token == 65536


def test_state_is_one_block_without_prefix_caching() -> None:
    blocks = {
        cached: {
            group.block_size
            for group in planned(
                "granite-4-h-small", max_model_len=4096, enable_prefix_caching=cached
            ).groups
            if group.kind == CacheKind.STATE
        }
        for cached in (True, False)
    }
    assert blocks == {True: {528}, False: {4096}}


def test_unplannable_models_are_refused_by_name() -> None:
    for config, reason in (
        ({"model_type": "deepseek_v4", "compress_ratios": [4, 128]}, "several compressed states"),
        ({"model_type": "glm5_next"}, "pooled indexer states"),
        ({"model_type": "qwen4_exp"}, "several recurrent states"),
        ({"model_type": "whisper"}, "cross attention"),
        ({"model_type": "new", "kv_lora_rank": 512, "num_hidden_layers": 2}, "'new'"),
        ({"model_type": "x", "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 64,
          "layer_types": ["oracle"]}, "'oracle'"),
    ):  # fmt: skip
        made = plan(shape_of(config), Serving(max_model_len=4096), Room(kv_memory=GIB))
        assert made.pool is None and made.fits is None
        assert reason in made.refused[0]
    per_block_plan = planned("falcon-h1-3b", vllm_version="0.28.9", enable_prefix_caching=True)
    assert "of a Mamba model for every block" in per_block_plan.refused[0]
    assert (per_block_plan.architecture, per_block_plan.vllm_version) == ("falcon_h1", "0.28.9")
    assert planned("falcon-h1-3b", vllm_version="0.29.0", enable_prefix_caching=True).pool
    refused_plan = planned("llama-3-1-8b", kv_cache_dtype="turboquant_4bit_nc")
    assert "turboquant_4bit_nc" in refused_plan.refused[0]


def test_more_memory_never_fits_less() -> None:
    for model in MODELS:
        tokens = [
            made.pool.tokens
            for gib in (1, 2, 4.5, 9, 40)
            if (made := planned(model, gib)).pool is not None
        ]
        assert tokens == sorted(tokens)


def test_headroom_is_kept_from_the_concurrency() -> None:
    shape = shape_of(MODELS["llama-3-1-8b"])
    serving, room = Serving(max_model_len=8192), Room(kv_memory=10 * GIB)
    counts = [
        plan(shape, serving, room, headroom).largest_concurrency for headroom in (0, 0.1, 0.2)
    ]
    assert counts == [10, 9, 8]
    assert plan(shape, replace(serving, max_model_len=80000), room).largest_concurrency == 0


def test_pages_that_do_not_divide_the_largest_are_padded() -> None:
    layer_configs = {str(layer): {"num_key_value_heads": 2, "head_dim": 96} for layer in range(2)}
    config = {
        "model_type": "mistral", "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 1024, "sliding_window": 64,
        "layer_types": ["sliding_attention", "sliding_attention", *["full_attention"] * 2],
        "per_layer_config": layer_configs,
    }  # fmt: skip
    made = plan(shape_of(config), Serving(max_model_len=4096), Room(kv_memory=GIB))
    assert {(group.kind, group.block_size, group.page_bytes) for group in made.groups} == {
        ("sliding window", 16, 16 * 2 * 2 * 128 * 2), ("full attention", 16, 16 * 2 * 2 * 128 * 2),
    }  # fmt: skip


def test_single_group_figure_has_no_note_in_old_versions() -> None:
    shape = shape_of({**MODELS["llama-3-1-8b"], "model_type": "mistral", "sliding_window": 64})
    room = Room(kv_memory=GIB)
    old, new = (
        plan(shape, Serving(max_model_len=4096, vllm_version=version), room)
        for version in ("0.20.1", "0.20.2")
    )
    assert len(old.groups) == 1
    assert not any("KV cache size" in note for note in old.notes)
    assert any("concurrency times context" in note for note in new.notes)


def test_states_are_divided_and_their_groups_repeated() -> None:
    memory_plan, two = (
        planned("granite-4-h-small"),
        planned("granite-4-h-small", tensor_parallel_size=2),
    )
    # 8,192 channels and one group of twice 128, three rows; 128 heads of 64 times 128.
    assert memory_plan.block_size == 528
    assert two.kv_bytes_per_token == 4 * 2 * 128 * 2
    state = 2 * (3 * (8192 + 2 * 2 * 128) // 2 + 128 // 2 * 64 * 128)
    assert two.page_bytes is not None
    assert 0 <= two.page_bytes - state < 16 * 4 * 2 * 128 * 2
    odd = {**MODELS["granite-4-h-small"], "num_attention_heads": 48, "num_key_value_heads": 48,
           "mamba_n_heads": 128}  # fmt: skip
    with pytest.raises(UserError, match=r"6 does not divide the recurrent layers' .* channels"):
        plan(shape_of(odd), Serving(tensor_parallel_size=6, max_model_len=64), Room(kv_memory=GIB))
