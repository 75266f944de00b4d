"""A config.json's text part: found where it is nested, read with the defaults of its class."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
# Keys of one meaning: the name used here first, then what older classes call it.
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
# What no two sizes of a family share: a class's default says nothing of a whole model's file.
SIZES = (
    "hidden_size", "intermediate_size", "max_position_embeddings", "moe_intermediate_size",
    "n_routed_experts", "num_experts", "num_local_experts", "vocab_size",
)  # fmt: skip
WHOLE = "whole number"


@cache
def model_types() -> dict[str, dict[str, Any]]:
    """Return what is known of each model type, by its name."""
    return tomllib.loads(MODEL_TYPES.read_text(encoding="utf-8"))


def text_part(config: Mapping[str, Any]) -> tuple[dict[str, Any], str, bool]:
    """Return the config that describes the language model, its type and whether it is nested."""
    own = str(config.get("model_type") or "")
    for name in NESTED:
        inner = config.get(name)
        if isinstance(inner, dict):
            deeper = text_part(inner)
            model_type = deeper[1] or TEXT_OF.get(own, own)
            return deeper[0], model_type, True
        if inner is not None and not isinstance(inner, dict):
            raise UserError(f"config.json: {name!r} is {inner!r}, not a table")
    return dict(config), own, False


def filled(
    text: Mapping[str, Any], model_type: str, *, nested: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the text config under one set of names, and what the class's defaults filled in.

    Only a nested config may leave out what a model is made of: multimodal configs do, and their
    classes' defaults are what the model was made with. A config of a whole model that does so is
    cut short, and nothing is guessed for it.
    """
    known = dict(text)
    for name, others in ALIASES.items():
        if known.get(name) is None:
            found = next((text[other] for other in others if text.get(other) is not None), None)
            if found is not None:
                known[name] = found
    defaults = model_types().get(TEXT_OF.get(model_type, model_type), {}).get("defaults", {})
    missing = [key for key in ESSENTIAL if known.get(key) is None]
    block_pattern = known.get("hybrid_override_pattern") or known.get("layers_block_type")
    if "num_hidden_layers" in missing and block_pattern:
        known["num_hidden_layers"] = len(block_pattern)
        missing.remove("num_hidden_layers")
    if missing and (not nested or any(key not in defaults for key in missing)):
        raise UserError(
            f"config.json: {' and '.join(map(repr, missing))} "
            f"{'is' if len(missing) == 1 else 'are'} missing, so the cache's size is unknown"
            f"{f' (model type {model_type!r})' if model_type else ''}\n"
            "give the config.json of the whole checkpoint"
        )
    notes = []
    for key, value in defaults.items():
        if key not in known and (nested or key not in SIZES):
            known[key] = value
            if key in ESSENTIAL or key in SIZES:
                notes.append(f"{key} is not in the config: {value}, its class's default")
    check_numbers(known, ("num_hidden_layers", "num_attention_heads", "hidden_size"), least=1)
    check_numbers(known, ("num_key_value_heads", "head_dim", "sliding_window"), least=0)
    return known, notes


def check_numbers(config: Mapping[str, Any], keys: Iterable[str], *, least: int) -> None:
    """Raise `UserError` for a value that is there and is no whole number from `least` on."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"config.json: {key!r} is {value!r}; a {WHOLE} from {least} is needed")


def number(config: Mapping[str, Any], key: str) -> int:
    """Return the whole number under `key`; raises `UserError` when there is none."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        found = "missing" if value is None else f"{value!r}"
        raise UserError(f"config.json: {key!r} is {found}; a {WHOLE} is needed to plan this model")
    return value
