"""Reads a config.json as a shape: the cache of each layer.

The code of vLLM that decides: `Attention.get_kv_cache_spec` (a layer's own window or the config's),
`ModelArchConfigConvertor` (heads, widths, MLA), each model's class (shared caches, alternating
layers), `MambaStateShapeCalculator` (states).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import bounds
from pytest_vllm_gates.memory_plan.config import filled, model_types, number, text_part
from pytest_vllm_gates.memory_plan.layers import (
    BOTH,
    CHUNKED,
    FULL,
    RECURRENT,
    SLIDING,
    STATELESS,
    kinds_of,
)
from pytest_vllm_gates.memory_plan.states import STATES
from pytest_vllm_gates.memory_plan.types import Cache, CacheKind, ModelShape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Types whose attention caches a latent vector if the config has `kv_lora_rank`.
LATENT = {
    "axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_mtp", "glm4_moe_lite",
    "glm_moe_dsa", "kimi_k2", "kimi_linear", "longcat_flash", "longcat_flash_ngram",
    "pangu_ultra_moe",
}  # fmt: skip
# Keys of attention that caches more or less than keys and values.
SPARSE = re.compile(
    r"(index_(topk|head_dim|n_heads)|indexer|compress_|(use_)?sparse_att|(nsa|dsa|csa|moba)_)"
)
INDEXER_BYTES_OF_SCALE = 4
INDEXER_GROUP = 128
USUAL_OFFSET = 2

# Kinds of rope scaling that `max_position_embeddings` already includes.
UNSTRETCHED = {"su", "longrope", "llama3", "mrope", "default", None}


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a config describes; raises `UserError` for an invalid config."""
    if not isinstance(config, dict) or not config:
        raise UserError("config.json: not a table of a model's settings")
    try:
        return _shape_of(config)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        kind = config.get("model_type") or "this"
        raise UserError(
            f"config.json: a setting of {kind} has a form that is not known here "
            f"({type(error).__name__}: {error})"
        ) from error


def _shape_of(config: Mapping[str, Any]) -> ModelShape:
    raw, model_type, nested = text_part(config)
    architectures = config.get("architectures") or raw.get("architectures") or []
    has_architecture = isinstance(architectures, list) and architectures
    architecture = str(architectures[0]) if has_architecture else model_type or "unknown"
    refusal = _refusal(config, raw, model_type)
    if refusal:
        return ModelShape(architecture, model_type, 0, (), _dtype(config, raw), refused=(refusal,))
    text_config, notes = filled(raw, model_type, nested=nested)
    bounds.check(text_config)
    vision = config.get("vision_config")
    tower = vision if isinstance(vision, dict) else {}
    bounds.check(tower, "vision_config.", numbers_only=True)
    layers = number(text_config, "num_hidden_layers")
    kinds = kinds_of(text_config, model_type, layers)
    unknown = sorted(set(kinds) - FULL - SLIDING - CHUNKED - STATELESS - RECURRENT - BOTH)
    if unknown:
        reason = f"layers of the kind {', '.join(map(repr, unknown))} are not known here"
        return ModelShape(
            architecture, model_type, layers, (), _dtype(config, raw), refused=(reason,)
        )
    caches = _caches(text_config, model_type, kinds)
    if not any(cache.kind is not CacheKind.STATE for cache in caches):
        reason = "it has no attention layer, so it has no KV cache to plan"
        return ModelShape(
            architecture, model_type, layers, (), _dtype(config, raw), refused=(reason,)
        )
    return ModelShape(
        architecture=architecture,
        model_type=model_type,
        layers=layers,
        caches=tuple(caches),
        dtype=_dtype(config, raw),
        context=_context(text_config, model_type),
        drafter=_drafter(text_config, model_type, layers),
        sparse=_is_latent(text_config, model_type) and bool(text_config.get("index_topk")),
        quantisation=_quantisation(config, raw),
        config=text_config,
        raw_config=config,
        notes=tuple(notes),
    )


def _refusal(
    config: Mapping[str, Any], text_config: Mapping[str, Any], model_type: str
) -> str | None:
    for name in (model_type, str(config.get("model_type") or "")):
        refusal = model_types().get(name, {}).get("refused")
        if refusal:
            return str(refusal)
    if text_config.get("compress_ratios"):
        return "compressed attention states of several rates (compress_ratios)"
    if config.get("is_encoder_decoder"):
        return "an encoder's cross attention is not planned"
    if text_config.get("kv_lora_rank") is not None and model_type not in LATENT:
        return f"latent attention in a model type not known here, {model_type or 'unnamed'!r}"
    if model_type not in LATENT:
        keys = [key for key, value in text_config.items() if value and SPARSE.match(str(key))]
        if keys:
            return (
                f"sparse attention ({', '.join(sorted(keys))}) in a model type not known here, "
                f"{model_type or 'unnamed'!r}"
            )
    return None


def _dtype(config: Mapping[str, Any], text_config: Mapping[str, Any]) -> str:
    """Return the weights' type in the config; vLLM converts float32 to two bytes."""
    vision = config.get("vision_config")
    places = [config, text_config, *([vision] if isinstance(vision, dict) else [])]
    names = (place.get("dtype") or place.get("torch_dtype") for place in places)
    dtype = next((str(name).removeprefix("torch.") for name in names if name), "auto")
    return "bfloat16" if dtype == "float32" else dtype


def _quantisation(config: Mapping[str, Any], text_config: Mapping[str, Any]) -> Mapping[str, Any]:
    for place in (config, text_config):
        for key in ("quantization_config", "compression_config"):
            table = place.get(key)
            if table is not None and not isinstance(table, dict):
                raise UserError(f"config.json: {key!r} is {table!r}, not a table")
            if table:
                return dict(table)
    return {}


def _context(text_config: Mapping[str, Any], model_type: str) -> int | None:
    """Return the tokens of context, extended by the config's rope scaling as in vLLM."""
    value = text_config.get("max_position_embeddings")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return None
    scaling = text_config.get("rope_scaling") or text_config.get("rope_parameters") or {}
    kind = scaling.get("rope_type") or scaling.get("type")
    factor = scaling.get("factor")
    if kind in UNSTRETCHED or "gemma3" in model_type or not isinstance(factor, int | float):
        return value
    original = scaling.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(original, int):
        value = original
    return int(value * factor)


def _caches(text_config: Mapping[str, Any], model_type: str, kinds: Sequence[str]) -> list[Cache]:
    layers = len(kinds)
    shared = text_config.get("num_kv_shared_layers") or 0
    window = (
        text_config.get("sliding_window") if text_config.get("use_sliding_window", True) else None
    )
    # If a config does not distinguish its layers, vLLM gives its window to all of them.
    uniform = window and text_config.get("layer_types") is None and not set(kinds) - FULL
    caches: list[Cache] = []
    for layer, kind in enumerate(kinds):
        if kind in RECURRENT | BOTH:
            caches.append(
                Cache(layer, CacheKind.STATE, state=_state(text_config, model_type, kind))
            )
        if kind in RECURRENT | STATELESS or layer >= layers - shared:
            continue
        if _is_latent(text_config, model_type):
            caches += _latent(text_config, layer) * (
                2 if model_type.startswith("longcat_flash") else 1
            )
            continue
        heads, width = _heads(text_config, kind, layer)
        if heads == 0:
            continue
        if kind in CHUNKED:
            chunk = number(text_config, "attention_chunk_size")
            caches.append(Cache(layer, CacheKind.CHUNKED, heads, width, width, chunk))
        elif kind in SLIDING and "sliding_window" not in text_config:
            raise UserError("config.json: layers have windows, but 'sliding_window' is missing")
        elif window and (kind in SLIDING or uniform):
            caches.append(Cache(layer, CacheKind.SLIDING, heads, width, width, window))
        else:
            caches.append(Cache(layer, CacheKind.FULL, heads, width, width))
    return caches


def _state(text_config: Mapping[str, Any], model_type: str, kind: str) -> Any:
    if model_type in STATES:
        return STATES[model_type](text_config)
    raise UserError(
        f"config.json: layers of the kind {kind!r} in the model type {model_type!r} are not known"
    )


def _is_latent(text_config: Mapping[str, Any], model_type: str) -> bool:
    return model_type in LATENT and text_config.get("kv_lora_rank") is not None


def _latent(text_config: Mapping[str, Any], layer: int) -> list[Cache]:
    """Return a latent cache and, in a layer that chooses its own tokens, the indexer's keys.

    An indexer stores `index_head_dim` bytes, and a scale of four bytes for each 128 of them. With
    `index_topk_freq` or `index_topk_pattern` some layers reuse the choice of the previous layer.
    """
    width = number(text_config, "kv_lora_rank") + number(text_config, "qk_rope_head_dim")
    caches = [Cache(layer, CacheKind.LATENT, 1, width)]
    if text_config.get("index_topk") and not _reuses_choice(text_config, layer):
        keys = number(text_config, "index_head_dim")
        keys += keys // INDEXER_GROUP * INDEXER_BYTES_OF_SCALE
        caches.append(Cache(layer, CacheKind.INDEXER, 1, keys))
    return caches


def _reuses_choice(text_config: Mapping[str, Any], layer: int) -> bool:
    pattern = text_config.get("index_topk_pattern")
    if pattern is not None:
        return layer < len(pattern) and pattern[layer] == "S"
    frequency = text_config.get("index_topk_freq") or 1
    offset = text_config.get("index_skip_topk_offset")
    offset = USUAL_OFFSET if offset is None else offset
    return max(layer - int(offset) + 1, 0) % int(frequency) != 0


def _heads(text_config: Mapping[str, Any], kind: str, layer: int) -> tuple[int, int]:
    """Return the number of KV heads in this layer, and their width."""
    total = number(text_config, "num_attention_heads")
    heads = text_config.get("num_key_value_heads")
    heads = total if heads is None else heads
    if text_config.get("multi_query") is True and not text_config.get("new_decoder_architecture"):
        heads = 1
    width = text_config.get("head_dim") or number(text_config, "hidden_size") // total
    layer_config = (text_config.get("per_layer_config") or {}).get(str(layer))
    if isinstance(layer_config, dict):
        return layer_config.get("num_key_value_heads", heads), layer_config.get("head_dim", width)
    if "global_head_dim" in text_config and kind in FULL:
        wide = (
            text_config.get("num_global_key_value_heads")
            if text_config.get("attention_k_eq_v")
            else None
        )
        return wide or heads, text_config["global_head_dim"] or width
    blocks = text_config.get("block_configs")
    if isinstance(blocks, list) and layer < len(blocks):
        attention = blocks[layer].get("attention", {})
        shared_by = attention.get("n_heads_in_group")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            return 0, width
        heads = total // shared_by if shared_by else heads
    return heads, width


def _drafter(text_config: Mapping[str, Any], model_type: str, layers: int) -> tuple[Cache, ...]:
    """Return the caches of the model's own prediction layers, which use full attention."""
    count = next(
        (
            text_config[key]
            for key in ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules")
            if isinstance(text_config.get(key), int)
        ),
        0,
    )
    if not count and model_type.startswith(("qwen3_next", "qwen3_5")):
        count = 1
    caches: list[Cache] = []
    for _ in range(count):
        if _is_latent(text_config, model_type):
            # A prediction layer has its own indexer, whatever the other layers reuse.
            drafter_config = {**text_config, "index_topk_freq": 1, "index_topk_pattern": None}
            caches += _latent(drafter_config, layers - 1)
        else:
            heads, width = _heads(text_config, "full_attention", layers - 1)
            caches.append(Cache(layers - 1, CacheKind.FULL, heads, width, width))
    return tuple(caches)
