"""The kind of each layer of a model, in the words of its config or of its class's pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.config import TEXT_OF, model_types, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FULL = {"full_attention", "attention", "full", "global", "*", "global_attention"}

SLIDING = {"sliding_attention", "sliding_window", "local_attention"}

CHUNKED = {"chunked_attention"}

STATELESS = {"-", "e", "mlp", "moe"}

RECURRENT = {"linear_attention", "mamba", "m", "mamba2", "conv", "kda"}

BOTH = {"hybrid"}


def kinds_of(text_config: Mapping[str, Any], model_type: str, layers: int) -> list[str]:
    """Return the kind of each layer, in the words of the config or of its class's pattern."""
    pattern = text_config.get("hybrid_override_pattern")
    layer_types = text_config.get("layer_types") or text_config.get("layers_block_type")
    if isinstance(pattern, str) and pattern:
        kinds = list(pattern.lower())
    elif isinstance(layer_types, list):
        kinds = [str(kind).lower() for kind in layer_types]
    else:
        kinds = _pattern(text_config, model_type, layers)
    if len(kinds) < layers:
        raise UserError(
            f"config.json: {layers} layers, but only {len(kinds)} are described (layer_types)"
        )
    return kinds[:layers]


def _pattern(text_config: Mapping[str, Any], model_type: str, layers: int) -> list[str]:
    traits = model_types().get(TEXT_OF.get(model_type, model_type), {})
    interval, other_kind = traits.get("every"), str(traits.get("others"))
    pattern = text_config.get("sliding_window_pattern") or text_config.get(
        "full_attention_interval"
    )
    if isinstance(pattern, str) and pattern:
        words = {"L": "sliding_attention", "G": "full_attention"}
        return [words.get(pattern[layer % len(pattern)], pattern) for layer in range(layers)]
    if model_type in PATTERNS:
        return PATTERNS[model_type](text_config, layers)
    if isinstance(pattern, int) and pattern > 0 and interval:
        interval = pattern
    if not interval:
        return ["full_attention"] * layers
    kinds = [other_kind if (layer + 1) % interval else "full_attention" for layer in range(layers)]
    if model_type.startswith("gemma4"):
        kinds[-1] = "full_attention"
    if model_type == "exaone4" and text_config.get("sliding_window") is not None:
        kinds[-1] = "full_attention"
    if other_kind == "sliding_attention" and text_config.get("sliding_window") is None:
        return ["full_attention"] * layers
    return kinds


def _attends_at(indexes: Sequence[int], layers: int, other_kind: str) -> list[str]:
    chosen = set(indexes)
    return ["full_attention" if layer in chosen else other_kind for layer in range(layers)]


def _jamba(text_config: Mapping[str, Any], layers: int) -> list[str]:
    period, offset = (
        number(text_config, "attn_layer_period"),
        number(text_config, "attn_layer_offset"),
    )
    return _attends_at(range(offset, layers, period), layers, "mamba")


def _kimi_linear(text_config: Mapping[str, Any], layers: int) -> list[str]:
    linear = text_config.get("linear_attn_config") or {}
    # The list counts layers from one.
    return _attends_at([i - 1 for i in linear.get("full_attn_layers", ())], layers, "kda")


def _minimax(text_config: Mapping[str, Any], layers: int) -> list[str]:
    attends = text_config.get("attn_type_list") or [1] * layers
    return ["full_attention" if kind else "linear_attention" for kind in attends]


PATTERNS = {
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "bamba": lambda text_config, layers: _attends_at(
        text_config.get("attn_layer_indices") or (), layers, "mamba"
    ),
    "falcon_h1": lambda _, layers: ["hybrid"] * layers,
    "lfm2": lambda text_config, layers: _attends_at(
        text_config.get("full_attn_idxs") or range(layers), layers, "conv"
    ),
    "minimax_text_01": _minimax,
    "minimax_m1": _minimax,
}
