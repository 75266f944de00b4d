"""The state of a recurrent layer for one sequence, by model type.

After vLLM's `MambaStateShapeCalculator`: `gated_delta_net_state_shape`, `mamba2_state_shape`,
`mamba1_state_shape`, `kda_state_shape`, `short_conv_state_shape`, `linear_attention_state_shape`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan.config import number
from pytest_vllm_gates.memory_plan.types import RecurrentState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def gated_delta_net(text_config: Mapping[str, Any]) -> RecurrentState:
    """Qwen3-Next, Qwen3.5: a convolution over keys, queries, values; a matrix per value head."""
    keys = number(text_config, "linear_num_key_heads") * number(text_config, "linear_key_head_dim")
    heads, width = (
        number(text_config, "linear_num_value_heads"),
        number(text_config, "linear_value_head_dim"),
    )
    return RecurrentState(
        channels=2 * keys + heads * width,
        rows=number(text_config, "linear_conv_kernel_dim") - 1,
        heads=heads,
        head_elements=width * number(text_config, "linear_key_head_dim"),
        precision=str(text_config.get("mamba_ssm_dtype") or "auto"),
    )


def _mamba2(
    text_config: Mapping[str, Any], inner: int, groups: int, width: int, rows: int
) -> RecurrentState:
    heads, dim = ("mamba_num_heads", "mamba_head_dim")
    if heads not in text_config:
        heads, dim = ("mamba_n_heads", "mamba_d_head")
    return RecurrentState(
        channels=inner,
        rows=rows - 1,
        heads=number(text_config, heads),
        head_elements=number(text_config, dim) * width,
        groups=groups,
        group_channels=2 * width,
        precision=str(text_config.get("mamba_ssm_cache_dtype") or "auto"),
    )


def nemotron_h(text_config: Mapping[str, Any]) -> RecurrentState:
    """Mamba 2 with Nemotron-H's names; its memory is float32 if the config sets no other type."""
    inner = number(text_config, "mamba_num_heads") * number(text_config, "mamba_head_dim")
    groups, width = number(text_config, "n_groups"), number(text_config, "ssm_state_size")
    config = {"mamba_ssm_cache_dtype": "float32", **text_config}
    return _mamba2(config, inner, groups, width, number(text_config, "conv_kernel"))


def granite(text_config: Mapping[str, Any]) -> RecurrentState:
    """Mamba 2 with the names of Granite 4, Bamba and Falcon-H1."""
    inner = text_config.get("mamba_d_ssm") or int(
        text_config["mamba_expand"] * number(text_config, "hidden_size")
    )
    groups, width = number(text_config, "mamba_n_groups"), number(text_config, "mamba_d_state")
    return _mamba2(text_config, inner, groups, width, number(text_config, "mamba_d_conv"))


def jamba(text_config: Mapping[str, Any]) -> RecurrentState:
    """Mamba 1: one memory of `mamba_d_state` per channel."""
    inner = number(text_config, "mamba_expand") * number(text_config, "hidden_size")
    return RecurrentState(
        channels=inner,
        rows=number(text_config, "mamba_d_conv") - 1,
        heads=inner,
        head_elements=number(text_config, "mamba_d_state"),
        rows_per_draft=False,
    )


def kimi_linear(text_config: Mapping[str, Any]) -> RecurrentState:
    """Kimi Delta Attention: a square matrix per head, float32 by default."""
    linear = text_config["linear_attn_config"]
    heads, width = number(linear, "num_heads"), number(linear, "head_dim")
    return RecurrentState(
        channels=3 * heads * width,
        rows=int(linear.get("short_conv_kernel_size", 4)) - 1,
        heads=heads,
        head_elements=width * width,
        precision="float32",
    )


def lfm2(text_config: Mapping[str, Any]) -> RecurrentState:
    """A short convolution and no memory."""
    return RecurrentState(
        channels=number(text_config, "conv_dim" if "conv_dim" in text_config else "hidden_size"),
        rows=number(text_config, "conv_L_cache") - 1,
        heads=0,
        head_elements=0,
    )


def lightning(text_config: Mapping[str, Any]) -> RecurrentState:
    """Lightning attention: a square matrix per head and no convolution."""
    width = number(text_config, "head_dim")
    return RecurrentState(0, 0, number(text_config, "num_attention_heads"), width * width)


STATES: dict[str, Callable[[Mapping[str, Any]], RecurrentState]] = {
    "qwen3_next": gated_delta_net,
    "qwen3_5": gated_delta_net,
    "qwen3_5_text": gated_delta_net,
    "qwen3_5_moe": gated_delta_net,
    "qwen3_5_moe_text": gated_delta_net,
    "nemotron_h": nemotron_h,
    "granitemoehybrid": granite,
    "bamba": granite,
    "falcon_h1": granite,
    "jamba": jamba,
    "kimi_linear": kimi_linear,
    "lfm2": lfm2,
    "lfm2_moe": lfm2,
    "minimax_text_01": lightning,
    "minimax_m1": lightning,
}
