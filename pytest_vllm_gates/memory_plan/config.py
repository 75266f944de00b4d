"""The text part of a config.json, and vLLM's values for flags that are left out or "auto".

A nested text part gets the defaults of its model class. Flags follow vLLM
0.32: `EngineArgs.get_batch_defaults`, `resolve_kv_cache_dtype_string`,
`VllmConfig.max_concurrent_batches`, `MambaModelConfig`, `CpuPlatform.check_and_update_config`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import types as versions
from pytest_vllm_gates.memory_plan.types import GIB, CacheKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.memory_plan.types import ModelShape, Serving, Version

MODEL_TYPES = data.FOLDER / "model_types.toml"
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")

# The text part's type where a multimodal config does not name it.
TEXT_OF = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
}

# Keys with the same meaning: the name used here, then the names in older classes.
ALIASES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "hidden_size": ("n_embd", "d_model", "model_dim"),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim"),
    "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len", "model_max_length"),
    "head_dim": ("hidden_size_per_head", "kv_channels"),
    "num_key_value_heads": (
        "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups"
    ),
    "vocab_size": ("padded_vocab_size",),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
}  # fmt: skip
ESSENTIAL = ("num_hidden_layers", "num_attention_heads")

# Keys that differ between the sizes of a family: a class's default does not fit a whole model.
SIZES = (
    "hidden_size", "intermediate_size", "max_position_embeddings", "moe_intermediate_size",
    "n_routed_experts", "num_experts", "num_local_experts", "vocab_size",
)  # fmt: skip
WHOLE = "an integer"


@cache
def model_types() -> dict[str, dict[str, Any]]:
    """Return the known facts of each model type, by its name."""
    return tomllib.loads(MODEL_TYPES.read_text(encoding="utf-8"))


def text_part(config: Mapping[str, Any]) -> tuple[dict[str, Any], str, bool]:
    """Return the config that describes the language model, its type and whether it is nested."""
    own_type = str(config.get("model_type") or "")
    for name in NESTED:
        inner = config.get(name)
        if isinstance(inner, dict):
            deeper = text_part(inner)
            model_type = deeper[1] or TEXT_OF.get(own_type, own_type)
            return deeper[0], model_type, True
        if inner is not None and not isinstance(inner, dict):
            raise UserError(f"config.json: {name!r} is {inner!r}, not a table")
    return dict(config), own_type, False


def filled(
    text_config: Mapping[str, Any], model_type: str, *, nested: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the text config under one set of names, and notes on the defaults that it got.

    Only a nested config may leave out essential keys: multimodal configs do, and the model was
    made with its class's defaults. A whole model's config without them is cut off, and nothing is
    guessed for it.
    """
    normalised = dict(text_config)
    for name, aliases in ALIASES.items():
        if normalised.get(name) is None:
            alias_value = next(
                (text_config[alias] for alias in aliases if text_config.get(alias) is not None),
                None,
            )
            if alias_value is not None:
                normalised[name] = alias_value
    defaults = model_types().get(TEXT_OF.get(model_type, model_type), {}).get("defaults", {})
    missing = [key for key in ESSENTIAL if normalised.get(key) is None]
    block_pattern = normalised.get("hybrid_override_pattern") or normalised.get("layers_block_type")
    if "num_hidden_layers" in missing and block_pattern:
        normalised["num_hidden_layers"] = len(block_pattern)
        missing.remove("num_hidden_layers")
    if missing and (not nested or any(key not in defaults for key in missing)):
        raise UserError(
            f"config.json: {' and '.join(map(repr, missing))} "
            f"{'is' if len(missing) == 1 else 'are'} missing, so the cache's size is unknown"
            f"{f' (model type {model_type!r})' if model_type else ''}\n"
            "pass the config.json of the whole checkpoint"
        )
    notes = []
    for key, value in defaults.items():
        if key not in normalised and (nested or key not in SIZES):
            normalised[key] = value
            if key in ESSENTIAL or key in SIZES:
                notes.append(f"{key} is not in the config: {value}, its class's default")
    check_numbers(normalised, ("num_hidden_layers", "num_attention_heads", "hidden_size"), least=1)
    check_numbers(normalised, ("num_key_value_heads", "head_dim", "sliding_window"), least=0)
    return normalised, notes


def check_numbers(config: Mapping[str, Any], keys: Iterable[str], *, least: int) -> None:
    """Raise `UserError` for a value that is set, but is not an integer >= `least`."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"config.json: {key!r} is {value!r}; expected {WHOLE} >= {least}")


def number(config: Mapping[str, Any], key: str) -> int:
    """Return the integer under `key`; raises `UserError` if there is none."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        actual = "missing" if value is None else f"{value!r}"
        raise UserError(f"config.json: {key!r} is {actual}; planning this model requires {WHOLE}")
    return value


BYTES = {
    "auto": 2, "half": 2, "float16": 2, "bfloat16": 2, "float": 4, "float32": 4,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1,
}  # fmt: skip
PACKED_LATENT = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of a token in the sparse kernels' own formats, which do not follow from a width."""
REFUSED_CACHE_TYPES = (
    "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "nvfp4", "turboquant_k8v4",
    "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "ultraquant_4bit",
)  # fmt: skip

# Names under which ModelOpt and compressed-tensors write an fp8 cache into a checkpoint.
FP8_NAMES = {"fp8", "fp8_e4m3", "fp8_per_tensor"}


def kv_cache_dtype(shape: ModelShape, serving: Serving) -> tuple[str, str | None]:
    """Return the cache's type as vLLM resolves it, or why it cannot be planned."""
    cache_type = serving.kv_cache_dtype
    known_types = {*BYTES, *PACKED_LATENT}
    if cache_type in REFUSED_CACHE_TYPES:
        return (
            cache_type,
            f"the cache type {cache_type!r} has its own page format, which is not planned here",
        )
    if cache_type not in known_types:
        guess = nearest(cache_type, known_types)
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise UserError(f"--kv-cache-dtype {cache_type!r} is not known{hint}")
    if cache_type in PACKED_LATENT and not shape.sparse:
        raise UserError(
            f"--kv-cache-dtype {cache_type}: only sparse latent attention has this format"
        )
    if cache_type == "auto":
        cache_type = _from_checkpoint(shape.quantisation) or cache_type
    return (_sparse(cache_type, shape, serving) if shape.sparse else cache_type), None


def _sparse(cache_type: str, shape: ModelShape, serving: Serving) -> str:
    """Return the type that a sparse kernel uses for the requested one.

    FlashMLA's kernels use their own fp8 format for every fp8 type; FlashInfer's kernels, on
    Blackwell, use plain fp8. GLM 5 on Blackwell uses fp8 by default.
    """
    version = versions.parsed(serving.vllm_version)
    if cache_type == "auto" and version < versions.SPARSE_KEEPS_ITS_TYPE:
        return "fp8_ds_mla"
    if cache_type == "auto" and serving.blackwell and shape.model_type == "glm_moe_dsa":
        return "fp8_e4m3"
    plain = serving.blackwell or (cache_type == "fp8_e4m3" and version >= versions.SPARSE_PLAIN_FP8)
    return "fp8_ds_mla" if cache_type.startswith("fp8") and not plain else cache_type


def _from_checkpoint(quantisation: Mapping[str, Any]) -> str | None:
    """Return the cache type that the checkpoint was calibrated for; "auto" then means this type."""
    inner = quantisation.get("quantization")
    for place in (quantisation, inner if isinstance(inner, dict) else {}):
        scheme = place.get("kv_cache_scheme")
        if isinstance(scheme, dict) and scheme.get("num_bits") == 8:  # noqa: PLR2004 - bits of fp8
            return "fp8"
        name = place.get("kv_cache_quant_algo") or scheme
        if isinstance(name, str) and name.lower() in FP8_NAMES:
            return "fp8"
    return None


def model_bytes(shape: ModelShape, serving: Serving) -> int:
    """Return the bytes of an element of the model's own type."""
    name = shape.dtype if serving.dtype == "auto" else serving.dtype
    if name not in BYTES:
        if serving.dtype != "auto":
            raise UserError(f"--dtype {name!r} is not known; for example bfloat16")
        raise UserError(f"config.json: the type {name!r} is not known; pass --dtype")
    return BYTES[name]


LARGE_DEVICE, HUGE_DEVICE = 70 * GIB, 160 * GIB
"""The sizes at which vLLM's defaults change (`EngineArgs.get_batch_defaults` of 0.32)."""


def max_num_batched_tokens(serving: Serving, *, certain: bool) -> tuple[int, str | None]:
    """Return the tokens of one batch, and a note if a guess was needed and matters."""
    if serving.max_num_batched_tokens is not None:
        return serving.max_num_batched_tokens, None
    if serving.device == "cpu":
        ranks = serving.tensor_parallel_size * serving.pipeline_parallel_size
        return 2048 * ranks, None
    if serving.device_memory is None:
        note = (
            "max_num_batched_tokens is assumed to be 8192, vLLM's default from 70 GiB a device "
            "(2048 below, and on an A100): a window's share depends on it"
        )
        return 8192, None if certain else note
    if serving.device_memory < LARGE_DEVICE or serving.a100:
        return 2048, None
    largest = versions.parsed(serving.vllm_version) >= versions.LARGEST_BATCHES
    return (16384 if largest and serving.device_memory >= HUGE_DEVICE else 8192), None


def max_num_seqs(serving: Serving) -> int:
    """Return the sequences of one batch: as set, or vLLM's default for the device."""
    if serving.max_num_seqs is not None:
        return serving.max_num_seqs
    if serving.device == "cpu":
        return 128 * serving.tensor_parallel_size * serving.pipeline_parallel_size
    small = serving.device_memory is not None and serving.device_memory < LARGE_DEVICE
    return 256 if small or serving.a100 else 1024


def batches_in_flight(serving: Serving, version: Version) -> int:
    """Return how many batches may be scheduled at once, before the first one is finished."""
    stages = serving.pipeline_parallel_size
    if version < versions.BATCHES_IN_FLIGHT:
        return 1
    asynchronous = serving.async_scheduling
    if asynchronous is None:
        asynchronous = serving.device != "cpu" and stages == 1
    return 2 if asynchronous and stages == 1 else stages


def caches_prefixes(shape: ModelShape, serving: Serving, version: Version) -> bool:
    """Return whether prefixes are cached; a recurrent layer then needs one more block."""
    if serving.enable_prefix_caching is not None:
        return serving.enable_prefix_caching
    recurrent = any(cache.kind is CacheKind.STATE for cache in shape.caches)
    return not recurrent or version >= versions.HYBRID_PREFIX_CACHING
