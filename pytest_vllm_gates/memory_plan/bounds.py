"""Bounds on the numbers of a config: impossible values are errors, before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_LAYERS = 4096
MOST_OF = {
    "num_hidden_layers": MOST_LAYERS, "depth": MOST_LAYERS, "mtp_num_hidden_layers": MOST_LAYERS,
    "num_nextn_predict_layers": MOST_LAYERS, "num_mtp_modules": MOST_LAYERS,
    "num_kv_shared_layers": MOST_LAYERS, "first_k_dense_replace": MOST_LAYERS,
    "vocab_size": 2**26, "vocab_size_per_layer_input": 2**26,
    "max_position_embeddings": 2**30, "sliding_window": 2**30, "attention_chunk_size": 2**30,
    "index_topk": 2**30,
}  # fmt: skip
SIZES = (
    "hidden_size", "intermediate_size", "moe_intermediate_size", "intermediate_size_mlp",
    "shared_intermediate_size", "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size", "hidden_size_per_layer_input", "embed_dim",
    "num_attention_heads", "num_key_value_heads", "num_global_key_value_heads", "head_dim",
    "global_head_dim", "num_experts", "num_experts_per_tok", "n_routed_experts",
    "n_shared_experts", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
    "v_head_dim", "index_head_dim", "index_n_heads", "index_topk_freq", "decoder_sparse_step",
    "interleave_moe_layer_step", "sliding_window_pattern", "full_attention_interval",
    "linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads",
    "linear_value_head_dim", "linear_conv_kernel_dim", "mamba_n_heads", "mamba_d_head",
    "mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_expand", "mamba_num_heads",
    "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel",
)  # fmt: skip
MOST = 2**24
BY_LAYER = ("intermediate_size", "sliding_window_pattern")
"""Keys under which some models have a list or a pattern with a value for each layer."""
LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern", "attn_type_list")


def check(config: Mapping[str, Any], where: str = "", *, numbers_only: bool = False) -> None:
    """Raise `UserError` for a value that is not a number, is negative, or exceeds every model's.

    With `numbers_only` other values pass: vision towers have lists of widths, and words.
    """
    for key in (*SIZES, *MOST_OF):
        value = config.get(key)
        if value is None or isinstance(value, bool):
            continue  # switched off
        if numbers_only and not isinstance(value, int | float):
            continue
        if key in BY_LAYER and isinstance(value, list | str):
            _check_length(key, value, where)
            continue
        most = MOST_OF.get(key, MOST)
        if not isinstance(value, int) or not 0 <= value <= most:
            raise UserError(
                f"config.json: {where + key!r} is {excerpt(value)}; expected an integer from 0 to "
                f"{most:,}\npass the config.json of the whole checkpoint"
            )
    for key in LISTS:
        value = config.get(key)
        if isinstance(value, list | str):
            _check_length(key, value, where)


def _check_length(key: str, value: list[Any] | str, where: str) -> None:
    if len(value) > MOST_LAYERS:
        raise UserError(
            f"config.json: {where + key!r} describes {len(value):,} layers; at most "
            f"{MOST_LAYERS:,} are planned"
        )
