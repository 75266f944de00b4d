"""Numbers that no model has are errors at once; unknown sparse attention is refused by its keys."""

from __future__ import annotations

import time
from typing import Any

import pytest

from memory_plan.model_configs import DEEPSEEK_V3, LLAMA_8B
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.shape import shape_of


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 1_000_000}, "'num_hidden_layers' is 1000000"),
        ({"num_hidden_layers": [32]}, "'num_hidden_layers' is"),
        ({"num_key_value_heads": [8, 8]}, "'num_key_value_heads' is"),
        ({"intermediate_size": -14336}, "'intermediate_size' is -14336"),
        ({"hidden_size": -4096}, "'hidden_size' is -4096"),
        ({"vocab_size": -1}, "'vocab_size' is -1"),
        ({"vocab_size": 2**40}, "'vocab_size' is 1099511627776"),
        ({"head_dim": 128.5}, "'head_dim' is 128.5"),
        ({"num_experts": [8]}, "'num_experts' is"),
        ({"sliding_window": "wide"}, "'sliding_window' is"),
        ({"layer_types": ["full_attention"] * 5000}, "'layer_types' describes 5,000 layers"),
        ({"vision_config": {"depth": 10**9, "hidden_size": 64}}, "'vision_config.depth' is"),
        ({"vision_config": {"depth": 2, "hidden_size": -1}}, "'vision_config.hidden_size' is -1"),
        ({"kv_lora_rank": -512, "model_type": "deepseek_v3"}, "'kv_lora_rank' is -512"),
    ],
)
def test_numbers_that_no_model_has_are_named_at_once(changes: dict[str, Any], message: str) -> None:
    started = time.process_time()
    with pytest.raises(UserError) as caught:
        shape_of({**LLAMA_8B, **changes})
    assert message in str(caught.value)
    assert time.process_time() - started < 1


def test_vision_tower_may_have_a_list_of_widths() -> None:
    assert shape_of({**LLAMA_8B, "vision_config": {"depth": [1, 9], "hidden_size": [64, 128]}})


def test_a_layer_may_have_a_size_of_its_own() -> None:
    shape_of({**LLAMA_8B, "model_type": "gemma3n_text", "intermediate_size": [16384] * 32,
              "sliding_window": 512})  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {"index_topk": 2048, "index_head_dim": 128},
        {"indexer_num_heads": 4},
        {"sparse_attention_config": {"block_size": 64}},
        {"compress_ratios": [0, 4]},
        {"nsa_block_size": 64},
    ],
)
def test_new_type_with_sparse_keys_is_refused_by_the_key(keys: dict[str, Any]) -> None:
    shape = shape_of({**LLAMA_8B, "model_type": "brandnew", **keys})
    assert shape.refused and next(iter(keys)) in shape.refused[0]


def test_keys_that_only_look_sparse_are_planned() -> None:
    plain = {"decoder_sparse_step": 1, "image_token_index": 7, "index_topk": None,
             "sparse_attention_config": None, "use_sparse_attention": False}  # fmt: skip
    assert not shape_of({**LLAMA_8B, "model_type": "brandnew", **plain}).refused
    sparse = {**DEEPSEEK_V3, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
    assert not shape_of({**sparse, "model_type": "deepseek_v32"}).refused


def test_latent_types_that_vllm_serves_are_planned() -> None:
    # `is_deepseek_mla` of vLLM 0.32 (model_arch_config_convertor.py) has both.
    two = shape_of({**DEEPSEEK_V3, "model_type": "longcat_flash_ngram"})
    assert not two.refused
    assert len(two.caches) == len(shape_of({**DEEPSEEK_V3, "model_type": "longcat_flash"}).caches)


def test_sparse_config_without_sharing_may_have_null() -> None:
    # GLM-5.1's config.json (sglang#28532).
    sparse = {**DEEPSEEK_V3, "model_type": "glm_moe_dsa", "index_topk": 2048, "index_head_dim": 128,
              "index_n_heads": 64}  # fmt: skip
    null = {**sparse, "index_topk_freq": None, "index_skip_topk_offset": None}
    assert shape_of(null).caches == shape_of(sparse).caches
