"""Prevents vLLM from choosing its CUTLASS FP8 kernels on a GB10 on which they do not run.

Repairs: `CutlassFp8BlockScaledMMKernel` and `CutlassFP8ScaledMMLinearKernel` report that they are
supported on every GPU of compute capability 12.x. Some of their tiles need more shared memory than
the 99 KiB that a block has on a GB10, or were not compiled for it, so that the first forward pass,
at the profile run, dies of `RuntimeError: Error Internal` or `No compiled cutlass_scaled_mm for
CUDA device capability`. If a kernel refuses a product that a model would compute, it now reports
that it is not supported; vLLM then chooses the next, Triton's, which is slower and runs.

Versions: reported of nightly builds around 0.19 and 0.20 (vllm#40758, vllm#43367; for 12.0
vllm#32109). It is not known whether the wheels of 0.32.0 still do it: the repair tests the kernel.

Found by: those reports, which name the kernel, as the way around it
`VLLM_DISABLED_KERNELS=CutlassFp8BlockScaledMMKernel`, and as the cause CUTLASS's count of stages
(cutlass#3144). Not tried on a GB10.

Idle on every GPU that is not of compute capability 12.x, for kernels that are not supported anyway,
and for kernels that run: each is tested once in every process that loads weights.
"""

from functools import cache, wraps
from types import ModuleType
from typing import Any

from gb10_repairs._after_import import after_import

KERNELS = "vllm.model_executor.kernels.linear.scaled_mm.cutlass"
FAMILY = 12
# One token, and many tokens: they use different tiles. The weights are those of the report.
TOKENS = (1, 1024)
OUTPUTS, INPUTS = 16384, 5120
BLOCK = 128


def arm() -> None:
    """Guard the kernels' own checks once vLLM has imported them."""
    after_import(KERNELS, _guard)


def _guard(module: ModuleType) -> None:
    for name, in_blocks in (
        ("CutlassFp8BlockScaledMMKernel", True),
        ("CutlassFP8ScaledMMLinearKernel", False),
    ):
        kernel = getattr(module, name, None)
        if kernel is not None and "is_supported" in vars(kernel):
            kernel.is_supported = classmethod(
                _asked(vars(kernel)["is_supported"].__func__, module.ops, in_blocks=in_blocks)
            )


def _asked(is_supported: Any, ops: Any, *, in_blocks: bool) -> Any:
    @wraps(is_supported)
    def guarded(cls: Any, compute_capability: int | None = None) -> tuple[bool, str | None]:
        supported, reason = is_supported(cls, compute_capability)
        if not supported or compute_capability is None or compute_capability // 10 != FAMILY:
            return supported, reason
        refused = _refusal(ops, in_blocks)
        return (False, f"does not run on this GPU: {refused}") if refused else (True, None)

    return guarded


@cache
def _refusal(ops: Any, in_blocks: bool) -> str:
    """Multiply as a model would, and return the kernel's error if it refuses."""
    import torch  # noqa: PLC0415 - vLLM has imported it; other processes shall not

    def zeros(*shape: int) -> Any:
        # FP8's zero is the byte 0. Nothing is drawn: the generator's state belongs to the server.
        return torch.zeros(shape, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)

    def scales(*shape: int) -> Any:
        return torch.ones(shape, dtype=torch.float32, device="cuda")

    weights = zeros(OUTPUTS, INPUTS).t()
    for tokens in TOKENS:
        if in_blocks:
            # One scale per block; the tokens' scales are ordered by column, as the kernel requires.
            ours = scales(INPUTS // BLOCK, tokens).t()
            theirs = scales(OUTPUTS // BLOCK, INPUTS // BLOCK).t()
        else:
            ours, theirs = scales(1), scales(1)
        try:
            ops.cutlass_scaled_mm(
                zeros(tokens, INPUTS), weights, out_dtype=torch.bfloat16,
                scale_a=ours, scale_b=theirs,
            )  # fmt: skip
            torch.cuda.synchronize()
        except RuntimeError as error:
            return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""
