"""Configs as they are published: nested, truncated, odd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.config import model_types
from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, CacheKind, RecurrentState, Room, Serving

PLAIN = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512}


def kinds(config: dict[str, Any]) -> list[CacheKind]:
    return [cache.kind for cache in shape_of(config).caches]


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_a_nested_text_config_is_found(key: str) -> None:
    shape = shape_of({"model_type": "some_vl", key: {**PLAIN, "model_type": "qwen2"}})
    assert shape.layers == 4
    assert shape.model_type == "qwen2"


def test_multimodal_config_is_filled_from_its_class() -> None:
    # As published for the 4B: heads and their width are not in the file.
    shape = shape_of(
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
                "sliding_window": 1024, "intermediate_size": 10240,
            },
        }
    )  # fmt: skip
    assert {(cache.heads, cache.key) for cache in shape.caches} == {(4, 256)}
    assert sum(cache.kind is CacheKind.FULL for cache in shape.caches) == 5
    assert any("num_attention_heads is not in the config: 8" in note for note in shape.notes)


def test_truncated_config_is_refused() -> None:
    with pytest.raises(UserError, match="'num_hidden_layers' and 'num_attention_heads' are"):
        shape_of({"model_type": "llama"})
    with pytest.raises(UserError, match="'num_attention_heads' is missing"):
        shape_of({"model_type": "llama", "num_hidden_layers": 2})
    with pytest.raises(UserError, match="not a table"):
        shape_of({})


@pytest.mark.parametrize("value", ["32", -1, 0, 1.5, True, [32]])
def test_non_integer_value_is_named(value: object) -> None:
    with pytest.raises(UserError, match="'num_hidden_layers' is"):
        shape_of({**PLAIN, "model_type": "llama", "num_hidden_layers": value})


def test_windows_follow_the_pattern_of_each_family() -> None:
    window = {**PLAIN, "sliding_window": 64}
    assert set(kinds({**window, "model_type": "mistral"})) == {CacheKind.SLIDING}
    assert set(kinds({**window, "model_type": "mistral", "sliding_window": None})) == {
        CacheKind.FULL
    }
    assert set(kinds({**window, "model_type": "qwen2"})) == {CacheKind.FULL}
    assert set(kinds({**window, "model_type": "qwen2", "use_sliding_window": True})) == {
        CacheKind.SLIDING
    }
    alternating = [CacheKind.SLIDING, CacheKind.FULL] * 2
    assert kinds({**window, "model_type": "gemma2"}) == alternating
    assert kinds({**window, "model_type": "gpt_oss"}) == alternating
    assert kinds({**window, "model_type": "cohere2"}) == [CacheKind.SLIDING] * 3 + [CacheKind.FULL]
    assert kinds({**window, "model_type": "exaone4", "sliding_window_pattern": "LG"}) == alternating
    layer_types = ["full_attention"] * 4
    assert (
        kinds({**window, "model_type": "mistral", "layer_types": layer_types})
        == [CacheKind.FULL] * 4
    )


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({}, 4096),
        ({"max_position_embeddings": None}, None),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        (
            {"rope_parameters": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024,
            }},
            4096,
        ),
        ({"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 8.0}}, 4096),
    ],
)  # fmt: skip
def test_context_is_stretched_by_rope_scaling(changes: dict[str, Any], context: int | None) -> None:
    config = {**PLAIN, "model_type": "llama", "max_position_embeddings": 4096, **changes}
    assert shape_of(config).context == context


def test_chunks_have_the_length_in_the_config() -> None:
    layer_types = ["chunked_attention", "full_attention"] * 2
    config = {**PLAIN, "model_type": "llama4_text", "layer_types": layer_types}
    caches = shape_of({**config, "attention_chunk_size": 8192}).caches
    assert [(cache.kind, cache.window) for cache in caches] == [
        (CacheKind.CHUNKED, 8192), (CacheKind.FULL, None),
    ] * 2  # fmt: skip
    with pytest.raises(UserError, match="layers have windows, but 'sliding_window' is missing"):
        shape_of({**config, "layer_types": ["sliding_attention"] * 4})
    with pytest.raises(UserError, match="layers of the kind 'mamba' in the model type 'llama4"):
        shape_of({**config, "layer_types": ["mamba"] * 4})


def test_states_without_a_convolution_and_without_a_memory() -> None:
    minimax = {
        **PLAIN, "model_type": "minimax_m1", "head_dim": 64, "attn_type_list": [0, 1, 0, 1],
    }  # fmt: skip
    assert kinds(minimax) == [CacheKind.STATE, CacheKind.FULL] * 2
    assert shape_of(minimax).caches[0].state == RecurrentState(0, 0, 8, 64 * 64)
    lfm2 = {**PLAIN, "model_type": "lfm2", "conv_L_cache": 3, "full_attn_idxs": [3]}
    assert shape_of(lfm2).caches[0].state == RecurrentState(512, 2, 0, 0)


def test_layers_that_share_a_cache_have_none_of_their_own() -> None:
    shape = shape_of(
        {**PLAIN, "model_type": "gemma3n_text", "num_hidden_layers": 35, "num_kv_shared_layers": 15}
    )
    assert len(shape.caches) == 20
    assert sum(cache.kind is CacheKind.FULL for cache in shape.caches) == 4


def test_states_and_attention_layers_are_distinguished() -> None:
    nemotron = {
        **PLAIN, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*E",
        "num_hidden_layers": 5, "num_key_value_heads": 2,
    }  # fmt: skip
    assert kinds(nemotron) == [CacheKind.STATE, CacheKind.STATE, CacheKind.FULL]
    granite = {
        **PLAIN, "model_type": "granitemoehybrid", "num_key_value_heads": 2,
        "layer_types": ["mamba", "mamba", "attention", "mamba"],
    }  # fmt: skip
    assert kinds(granite) == [CacheKind.STATE, CacheKind.STATE, CacheKind.FULL, CacheKind.STATE]
    kimi = {
        **PLAIN, "model_type": "kimi_linear", "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "linear_attn_config": {"full_attn_layers": [4], "num_heads": 4, "head_dim": 64},
    }  # fmt: skip
    assert kinds(kimi) == [CacheKind.STATE] * 3 + [CacheKind.LATENT]


def test_blocks_without_attention_keep_nothing() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 4}},
        {"attention": {"no_op": True}},
        {"attention": {"n_heads_in_group": 2}},
        {"attention": {"replace_with_linear": True}},
    ]
    shape = shape_of({**PLAIN, "model_type": "nemotron-nas", "block_configs": blocks})
    assert [(cache.layer, cache.heads) for cache in shape.caches] == [(0, 2), (2, 4)]


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 200), st.floats(allow_nan=True), st.text(max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size",
        "head_dim", "layer_types", "sliding_window", "kv_lora_rank", "qk_rope_head_dim",
        "index_topk", "index_topk_freq", "text_config", "architectures", "quantization_config",
        "rope_scaling", "per_layer_config", "block_configs", "num_kv_shared_layers", "dtype",
        "hybrid_override_pattern", "linear_attn_config", "max_position_embeddings", "vocab_size",
        "vision_config", "sliding_window_pattern", "num_experts", "intermediate_size",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model_type=st.sampled_from([*sorted(model_types()), "kimi_linear", "", "unheard-of"]),
    odd=st.dictionaries(KEYS, VALUES, max_size=6),
)
def test_no_config_ends_in_a_traceback(model_type: str, odd: dict[str, Any]) -> None:
    config = {**PLAIN, "model_type": model_type, "max_position_embeddings": 4096, **odd}
    try:
        memory_plan = plan(shape_of(config), Serving(max_model_len=1024), Room(kv_memory=GIB))
    except UserError:
        return
    assert memory_plan.refused or memory_plan.pool is not None


def test_class_default_of_a_nested_config_is_noted() -> None:
    text = {"model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64}
    notes = shape_of({"model_type": "qwen3_5", "text_config": text}).notes
    assert "intermediate_size is not in the config: 12288, its class's default" in notes
    assert not any(note.startswith("hidden_size") for note in notes)


def test_old_falcon_multi_query_has_one_key_value_head() -> None:
    falcon = {**PLAIN, "model_type": "falcon", "multi_query": True}
    assert {cache.heads for cache in shape_of(falcon).caches} == {1}
    newer = {**falcon, "new_decoder_architecture": True}
    assert {cache.heads for cache in shape_of(newer).caches} == {8}


def test_pruned_model_layers_follow_its_block_configs() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 4}},
        {"attention": {"no_op": True}},
        {"attention": {"replace_with_linear": True}},
        {"attention": {}},
    ]
    caches = shape_of({**PLAIN, "model_type": "nemotron-nas", "block_configs": blocks}).caches
    assert [(cache.layer, cache.heads) for cache in caches] == [(0, 2), (3, 8)]


def test_the_last_layer_of_exaone_attends_in_full() -> None:
    config = {**PLAIN, "model_type": "exaone4", "num_hidden_layers": 5, "sliding_window": 64}
    assert kinds(config) == [CacheKind.SLIDING] * 3 + [CacheKind.FULL] * 2
    assert kinds({**config, "sliding_window": None}) == [CacheKind.FULL] * 5


def test_layer_count_is_read_from_the_pattern() -> None:
    config = {
        "model_type": "nemotron_h", "hidden_size": 512, "num_attention_heads": 8,
        "hybrid_override_pattern": "-*-*E*",
    }  # fmt: skip
    shape = shape_of(config)
    assert shape.layers == 6
    assert [cache.layer for cache in shape.caches] == [1, 3, 5]


def test_index_pattern_marks_layers_that_reuse_a_choice() -> None:
    config = {
        **PLAIN, "model_type": "glm_moe_dsa", "kv_lora_rank": 64, "qk_rope_head_dim": 64,
        "index_topk": 8, "index_head_dim": 128, "index_topk_pattern": "FSS",
    }  # fmt: skip
    choosing = [cache.layer for cache in shape_of(config).caches if cache.kind is CacheKind.INDEXER]
    assert choosing == [0, 3]
