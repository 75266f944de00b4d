"""The parameters of a layer's feed-forward part: one network, or experts with their router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan.config import number
from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart, Role, modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.memory_plan.types import ModelShape

UNGATED = ("nemotron_h", "nemotron", "phi", "starcoder2", "gpt_neox", "gpt2", "opt", "falcon")
# Types whose routers have no bias per expert, although their experts are counted like DeepSeek's.
UNBIASED = ("deepseek_v2",)


def feed_forward(
    shape: ModelShape, text_config: Mapping[str, Any], layer: int, kind: str
) -> Iterator[ParameterPart]:
    """Yield the parts of one layer's feed-forward part."""
    ungated = shape.model_type in UNGATED
    if shape.model_type == "nemotron_h":
        if kind in {"e", "moe"}:
            yield from _experts(shape, text_config, layer, ungated=ungated)
        elif kind in {"-", "mlp"}:
            inner = number(text_config, "intermediate_size")
            yield from _network(text_config, layer, "mixer", inner, ungated=ungated)
        return
    sparse = _is_sparse(shape, text_config, layer)
    if sparse:
        yield from _experts(shape, text_config, layer, ungated=ungated)
    if (
        not sparse
        or shape.model_type.startswith("gemma4")
        or text_config.get("shared_intermediate_size")
    ):
        inner = text_config.get("shared_intermediate_size") or _inner(text_config)
        double = shape.model_type.startswith("gemma4") and text_config.get("use_double_wide_mlp")
        shared = layer >= shape.layers - (text_config.get("num_kv_shared_layers") or 0)
        inner *= 2 if double and shared else 1
        yield from _network(text_config, layer, "mlp", inner, ungated=ungated)


def _network(
    text_config: Mapping[str, Any], layer: int, parent: str, inner: int, *, ungated: bool
) -> Iterator[ParameterPart]:
    hidden = number(text_config, "hidden_size")
    gate = {} if ungated else {"gate_proj": (inner, hidden)}
    shapes = {**gate, "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    yield from modules(Role.DENSE, layer, parent, shapes)


def _inner(text_config: Mapping[str, Any]) -> int:
    return number(
        text_config,
        "intermediate_size_mlp" if "intermediate_size_mlp" in text_config else "intermediate_size",
    )


def _is_sparse(shape: ModelShape, text_config: Mapping[str, Any], layer: int) -> bool:
    if not experts(text_config):
        return False
    if shape.model_type == "llama4_text":
        return (layer + 1) % int(text_config.get("interleave_moe_layer_step") or 1) == 0
    if layer in (text_config.get("mlp_only_layers") or ()):
        return False
    if (layer + 1) % int(text_config.get("decoder_sparse_step") or 1):
        return False
    return layer >= int(text_config.get("first_k_dense_replace") or 0)


def experts(text_config: Mapping[str, Any]) -> int:
    """Return how many routed experts a layer has."""
    count = text_config.get("num_experts")
    return count if isinstance(count, int) and count > 1 else 0


def _experts(
    shape: ModelShape, text_config: Mapping[str, Any], layer: int, *, ungated: bool
) -> Iterator[ParameterPart]:
    hidden, count = number(text_config, "hidden_size"), experts(text_config)
    matrices = 2 if ungated else 3
    inner = text_config.get("moe_intermediate_size") or number(text_config, "intermediate_size")
    parent = "mixer" if shape.model_type == "nemotron_h" else "mlp"
    name = f"layers.{layer}.{parent}.experts"
    size = count * matrices * hidden * inner
    yield ParameterPart(Role.EXPERTS, size, name=name, columns=hidden, layer=layer)
    # DeepSeek's routing has a bias per expert, which balances their load.
    bias = count if text_config.get("n_routed_experts") and shape.model_type not in UNBIASED else 0
    if text_config.get("use_routing_bias"):
        bias = count
    yield ParameterPart(Role.PLAIN, hidden * count + bias, replicated=True, layer=layer)
    if shape.model_type == "gpt_oss":
        yield ParameterPart(Role.PLAIN, count * (2 * inner + hidden + 1), layer=layer)
    shared = text_config.get("shared_expert_intermediate_size") or 0
    if shared:
        yield ParameterPart(Role.PLAIN, hidden, replicated=True, layer=layer)
    several = bool(text_config.get("n_shared_experts"))
    if several:
        shared = inner * text_config["n_shared_experts"]
    if shape.model_type == "nemotron_h":
        shared = text_config.get("moe_shared_expert_intermediate_size") or shared
    if shape.model_type == "llama4_text":
        shared = inner
    if shared:
        shared_name = "shared_experts" if several else "shared_expert"
        yield from _network(text_config, layer, f"{parent}.{shared_name}", shared, ungated=ungated)
