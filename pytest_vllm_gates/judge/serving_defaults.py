"""What vLLM makes of flags that are not given, and of those that say "auto".

After vLLM 0.32: `EngineArgs.get_batch_defaults`, `resolve_kv_cache_dtype_string`,
`VllmConfig.max_concurrent_batches`, `MambaModelConfig`, `CpuPlatform.check_and_update_config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.facts import vllm_versions as versions
from pytest_vllm_gates.facts.model_shape import Kind
from pytest_vllm_gates.facts.names import nearest
from pytest_vllm_gates.memory_plan.types import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.facts.model_shape import ModelShape
    from pytest_vllm_gates.facts.vllm_versions import Version
    from pytest_vllm_gates.memory_plan.types import Serving

BYTES = {
    "auto": 2, "half": 2, "float16": 2, "bfloat16": 2, "float": 4, "float32": 4,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1,
}  # fmt: skip
PACKED_LATENT = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of a token in the sparse kernels' own formats, which no width gives."""
REFUSED_CACHE_TYPES = (
    "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "nvfp4", "turboquant_k8v4",
    "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "ultraquant_4bit",
)  # fmt: skip
# Names under which ModelOpt and compressed-tensors write an fp8 cache into a checkpoint.
FP8_NAMES = {"fp8", "fp8_e4m3", "fp8_per_tensor"}


def kv_cache_dtype(shape: ModelShape, serving: Serving) -> tuple[str, str | None]:
    """Return the cache's type as vLLM resolves it, and what to tell a person about it."""
    asked = serving.kv_cache_dtype
    known = {*BYTES, *PACKED_LATENT}
    if asked in REFUSED_CACHE_TYPES:
        return asked, f"the cache type {asked!r} has pages of its own, which are not planned here"
    if asked not in known:
        guess = nearest(asked, known)
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise UserError(f"--kv-cache-dtype {asked!r} is not known{hint}")
    if asked in PACKED_LATENT and not shape.sparse:
        raise UserError(f"--kv-cache-dtype {asked}: only sparse latent attention has this format")
    if asked == "auto":
        asked = _from_checkpoint(shape.quantisation) or asked
    return (_sparse(asked, shape, serving) if shape.sparse else asked), None


def _sparse(asked: str, shape: ModelShape, serving: Serving) -> str:
    """Return the type a sparse kernel makes of the one asked for.

    FlashMLA's kernels have an fp8 format of their own and use it for whatever fp8 is asked for;
    FlashInfer's, on Blackwell, keep plain fp8. GLM 5 on Blackwell keeps fp8 unless told otherwise.
    """
    version = versions.parsed(serving.vllm_version)
    if asked == "auto" and version < versions.SPARSE_KEEPS_ITS_TYPE:
        return "fp8_ds_mla"
    if asked == "auto" and serving.blackwell and shape.model_type == "glm_moe_dsa":
        return "fp8_e4m3"
    plain = serving.blackwell or (asked == "fp8_e4m3" and version >= versions.SPARSE_PLAIN_FP8)
    return "fp8_ds_mla" if asked.startswith("fp8") and not plain else asked


def _from_checkpoint(quantisation: Mapping[str, Any]) -> str | None:
    """Return the cache type the checkpoint was calibrated for, which "auto" then means."""
    inner = quantisation.get("quantization")
    for place in (quantisation, inner if isinstance(inner, dict) else {}):
        scheme = place.get("kv_cache_scheme")
        if isinstance(scheme, dict) and scheme.get("num_bits") == 8:  # noqa: PLR2004 - bits of fp8
            return "fp8"
        name = place.get("kv_cache_quant_algo") or scheme
        if isinstance(name, str) and name.lower() in FP8_NAMES:
            return "fp8"
    return None


def model_bytes(shape: ModelShape, serving: Serving) -> int:
    """Return the bytes of an element of the model's own type."""
    name = shape.dtype if serving.dtype == "auto" else serving.dtype
    if name not in BYTES:
        if serving.dtype != "auto":
            raise UserError(f"--dtype {name!r} is not known; such as bfloat16")
        raise UserError(f"config.json: the type {name!r} is not known; give --dtype")
    return BYTES[name]


def max_num_batched_tokens(serving: Serving, *, certain: bool) -> tuple[int, str | None]:
    """Return the tokens of one batch, and a word when a guess was needed where it matters."""
    if serving.max_num_batched_tokens is not None:
        return serving.max_num_batched_tokens, None
    if serving.device == "cpu":
        ranks = serving.tensor_parallel_size * serving.pipeline_parallel_size
        return 2048 * ranks, None
    if serving.device_memory is None:
        note = (
            "max_num_batched_tokens was taken to be 8192, vLLM's default from 70 GiB a device "
            "(2048 below, and on an A100): a window's share depends on it"
        )
        return 8192, None if certain else note
    if serving.device_memory < 70 * GIB:
        return 2048, None
    return 8192, None


def batches_in_flight(serving: Serving, version: Version) -> int:
    """Return how many batches may be scheduled and not yet settled."""
    stages = serving.pipeline_parallel_size
    if version < versions.BATCHES_IN_FLIGHT:
        return 1
    wanted = serving.async_scheduling
    if wanted is None:
        wanted = serving.device != "cpu" and stages == 1
    return 2 if wanted and stages == 1 else stages


def caches_prefixes(shape: ModelShape, serving: Serving, version: Version) -> bool:
    """Return whether prefixes are cached, which costs a recurrent layer one more block."""
    if serving.enable_prefix_caching is not None:
        return serving.enable_prefix_caching
    recurrent = any(cache.kind is Kind.STATE for cache in shape.caches)
    return not recurrent or version >= versions.HYBRID_PREFIX_CACHING
