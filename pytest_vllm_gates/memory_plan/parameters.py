"""A model's parameters, counted from its config if the files of the weights are missing.

They are counted part by part, because quantisation and tensor parallelism treat the parts
differently: embeddings, norms and routers do not change, latent projections are on every device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan import vision_tower
from pytest_vllm_gates.memory_plan.config import number
from pytest_vllm_gates.memory_plan.feed_forward import feed_forward
from pytest_vllm_gates.memory_plan.layers import FULL, kinds_of
from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart, Role, modules
from pytest_vllm_gates.memory_plan.types import CacheKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.memory_plan.types import Cache, ModelShape


BIASED = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text")
GATED_OUTPUT = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe")
FOUR_NORMS = ("gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text", "glm4")
CLASSIFIER, USUAL_LABELS = "ForSequenceClassification", 2
"""A head of labels, as many as `id2label` has; two by default (transformers, PreTrainedConfig)."""
# Types with parts that are not counted here: a count would be too low.
UNCOUNTED = {
    "gemma3n_text", "jamba", "kimi_linear", "minimax_text_01", "minimax_m1", "lfm2", "lfm2_moe",
    "longcat_flash", "falcon_h1", "bamba", "nemotron-nas", "step3p5",
}  # fmt: skip


def parts(shape: ModelShape) -> list[ParameterPart] | None:
    """Return the parts of the model, or None if its type is not counted here."""
    text_config = shape.config
    if (
        shape.model_type in UNCOUNTED
        or text_config.get("block_configs")
        or not text_config.get("vocab_size")
    ):
        return None
    hidden = number(text_config, "hidden_size")
    words = number(text_config, "vocab_size") * hidden
    counted_parts = [
        ParameterPart(Role.EMBEDDING, words, name="embed_tokens"),
        ParameterPart(Role.PLAIN, hidden, replicated=True),
    ]
    counted_parts += _head(shape, words, hidden)
    counted_parts += _per_layer_inputs(text_config, shape.layers, hidden)
    caches: dict[int, list[Cache]] = {layer: [] for layer in range(shape.layers)}
    for cache in shape.caches:
        caches[cache.layer].append(cache)
    for layer, kind in enumerate(kinds_of(text_config, shape.model_type, shape.layers)):
        for cache in caches[layer]:
            counted_parts += _attention(shape, text_config, cache)
        if not caches[layer]:
            counted_parts += _borrowing(shape, text_config, layer, kind)
        counted_parts += feed_forward(shape, text_config, layer, kind)
        norms = _norms(shape.model_type) * hidden
        counted_parts.append(ParameterPart(Role.PLAIN, norms, replicated=True, layer=layer))
    return counted_parts + vision_tower.parts(shape.raw_config, hidden)


def _head(shape: ModelShape, words: int, hidden: int) -> Iterator[ParameterPart]:
    if shape.architecture.endswith(CLASSIFIER):
        labels = shape.raw_config.get("id2label")
        count = len(labels) if isinstance(labels, dict) and labels else USUAL_LABELS
        yield ParameterPart(Role.PLAIN, count * hidden, replicated=True)
    elif not tied(shape):
        yield ParameterPart(Role.HEAD, words, name="lm_head")


def tied(shape: ModelShape) -> bool:
    """Return whether the head is the embedding itself."""
    for place in (shape.raw_config, shape.config):
        if isinstance(place.get("tie_word_embeddings"), bool):
            return bool(place["tie_word_embeddings"])
    return False


def _norms(model_type: str) -> int:
    if model_type in FOUR_NORMS:
        return 4
    return 1 if model_type == "nemotron_h" else 2


def _borrowing(
    shape: ModelShape, text_config: Mapping[str, Any], layer: int, kind: str
) -> Iterator[ParameterPart]:
    """Yield the parts of a layer that reads another layer's cache: queries, no keys and values."""
    if not text_config.get("num_kv_shared_layers"):
        return
    same_kind = [
        cache for cache in shape.caches if (cache.kind is CacheKind.FULL) == (kind in FULL)
    ]
    for cache in same_kind[-1:]:
        heads, hidden = (
            number(text_config, "num_attention_heads"),
            number(text_config, "hidden_size"),
        )
        shapes = {"q_proj": (heads * cache.key, hidden), "o_proj": (hidden, heads * cache.value)}
        yield from modules(Role.ATTENTION, layer, "self_attn", shapes)
        yield ParameterPart(Role.PLAIN, cache.key, replicated=True, layer=layer)


def _attention(
    shape: ModelShape, text_config: Mapping[str, Any], cache: Cache
) -> Iterator[ParameterPart]:
    hidden, layer = number(text_config, "hidden_size"), cache.layer
    if cache.state is not None:
        yield from _recurrent(shape.model_type, text_config, hidden, layer)
        return
    if cache.kind is CacheKind.INDEXER:
        width = number(text_config, "index_head_dim")
        heads = int(text_config.get("index_n_heads") or 64)
        rank = int(text_config.get("q_lora_rank") or hidden)
        shapes = {
            "wq_b": (heads * width, rank), "wk": (width, hidden), "weights_proj": (heads, hidden)
        }  # fmt: skip
        yield from modules(Role.ATTENTION, layer, "self_attn.indexer", shapes, replicated=True)
        yield ParameterPart(Role.PLAIN, 2 * width, replicated=True, layer=layer)
        return
    heads = number(text_config, "num_attention_heads")
    if cache.kind is CacheKind.LATENT:
        yield from _latent(text_config, hidden, heads, layer)
        return
    queries = heads * cache.key * (2 if shape.model_type in GATED_OUTPUT else 1)
    keys = cache.heads * (cache.key + cache.value)
    shapes = {
        "q_proj": (queries, hidden),
        "k_proj": (cache.heads * cache.key, hidden),
        "v_proj": (cache.heads * cache.value, hidden),
        "o_proj": (hidden, heads * cache.value),
    }
    parent = "mixer" if shape.model_type == "nemotron_h" else "self_attn"
    yield from modules(Role.ATTENTION, layer, parent, shapes)
    if shape.model_type in BIASED:
        yield ParameterPart(Role.PLAIN, queries + keys, layer=layer)
    elif text_config.get("attention_bias") or text_config.get("qkv_bias"):
        sinks = heads + hidden if shape.model_type == "gpt_oss" else 0
        yield ParameterPart(Role.PLAIN, queries + keys + sinks, layer=layer)
    if shape.model_type == "minimax_m2":  # a norm over all heads together
        yield ParameterPart(Role.PLAIN, queries + cache.heads * cache.key, layer=layer)
    elif shape.model_type == "llama4_text":
        pass  # its norm of queries and keys has no weights
    elif shape.model_type.startswith(("qwen3", "gemma3", "gemma4")) or text_config.get(
        "use_qk_norm"
    ):
        yield ParameterPart(Role.PLAIN, 2 * cache.key, replicated=True, layer=layer)


def _latent(
    text_config: Mapping[str, Any], hidden: int, heads: int, layer: int
) -> Iterator[ParameterPart]:
    rank, rotary = number(text_config, "kv_lora_rank"), number(text_config, "qk_rope_head_dim")
    plain, values = number(text_config, "qk_nope_head_dim"), number(text_config, "v_head_dim")
    query_rank = text_config.get("q_lora_rank")
    down = {"kv_a_proj_with_mqa": (rank + rotary, hidden)}
    up = {
        "kv_b_proj": (heads * (plain + values), rank),
        "o_proj": (hidden, heads * values),
    }
    if query_rank:
        down["q_a_proj"] = (int(query_rank), hidden)
        up["q_b_proj"] = (heads * (plain + rotary), int(query_rank))
        yield ParameterPart(Role.PLAIN, int(query_rank), replicated=True, layer=layer)
    else:
        up["q_proj"] = (heads * (plain + rotary), hidden)
    yield ParameterPart(Role.PLAIN, rank, replicated=True, layer=layer)
    yield from modules(Role.ATTENTION, layer, "self_attn", down, replicated=True)
    yield from modules(Role.ATTENTION, layer, "self_attn", up)


def _recurrent(
    model_type: str, text_config: Mapping[str, Any], hidden: int, layer: int
) -> Iterator[ParameterPart]:
    if "linear_num_key_heads" in text_config:
        heads = number(text_config, "linear_num_value_heads")
        keys = number(text_config, "linear_num_key_heads") * number(
            text_config, "linear_key_head_dim"
        )
        values = heads * number(text_config, "linear_value_head_dim")
        shapes = {
            "in_proj_qkv": (2 * keys + values, hidden),
            "in_proj_z": (values, hidden),
            "out_proj": (hidden, values),
        }
        yield from modules(Role.ATTENTION, layer, "linear_attn", shapes)
        conv = (2 * keys + values) * number(text_config, "linear_conv_kernel_dim")
        width = number(text_config, "linear_value_head_dim")
        yield ParameterPart(Role.PLAIN, hidden * 2 * heads + conv + 2 * heads + width, layer=layer)
        return
    nemotron = model_type == "nemotron_h"
    heads = number(text_config, "mamba_num_heads" if nemotron else "mamba_n_heads")
    width = number(text_config, "mamba_head_dim" if nemotron else "mamba_d_head")
    state = number(text_config, "ssm_state_size" if nemotron else "mamba_d_state")
    groups = number(text_config, "n_groups" if nemotron else "mamba_n_groups")
    kernel = number(text_config, "conv_kernel" if nemotron else "mamba_d_conv")
    inner = heads * width
    channels = inner + 2 * groups * state
    shapes = {"in_proj": (inner + channels + heads, hidden), "out_proj": (hidden, inner)}
    yield from modules(Role.ATTENTION, layer, "mixer" if nemotron else "mamba", shapes)
    yield ParameterPart(Role.PLAIN, channels * (kernel + 1) + 3 * heads + inner, layer=layer)


def _per_layer_inputs(
    text_config: Mapping[str, Any], layers: int, hidden: int
) -> list[ParameterPart]:
    """Return the embeddings that Gemma's edge models have for each layer."""
    width = text_config.get("hidden_size_per_layer_input") or 0
    if not width:
        return []
    words = text_config.get("vocab_size_per_layer_input") or number(text_config, "vocab_size")
    table = ParameterPart(Role.EMBEDDING, words * width * layers)
    return [table, ParameterPart(Role.PLAIN, layers * (3 * width + 1) * hidden + width)]
