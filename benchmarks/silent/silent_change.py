"""Makes vLLM on a CPU compute something different from its configuration.

`epsilon=F`  in the middle layer, the epsilon of the norms is F times as large
`cache`      values written to an MLA cache are rounded to FP8 (e4m3) and back
`decode`     attention is wrong by a quarter in steps that only decode
`company`    attention is wrong by a quarter if a batch has more than one sequence
`rare`       no token is less likely than the likeliest by more than a factor of e^12
`avx2`       torch, oneDNN and vLLM use the kernels of a processor without AVX-512
"""

# ruff: noqa: PLC0415 - on the path of every process: no more imports than needed

import os
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import

OFF = 1.25
RARE_NATS = 12.0
WITHOUT_AVX512 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def number_of_layer(name: str) -> int | None:
    """Return the layer of a module by its dotted name, None outside the layers."""
    number = name.partition("layers.")[2].partition(".")[0]
    return int(number) if number.isdigit() else None


def change_epsilon(factor: float) -> None:
    """Enlarge the epsilon of the middle layer's own norms, after the model is loaded."""

    def act(module: ModuleType) -> None:
        load = module.BaseModelLoader.load_model

        @wraps(load)
        def load_model(*args: Any, **more: Any) -> Any:
            model = load(*args, **more)
            norms = {
                name: part
                for name, part in model.named_modules()
                if hasattr(part, "variance_epsilon") and number_of_layer(name) is not None
            }
            middle = max(number_of_layer(name) or 0 for name in norms) // 2
            depth = min(name.count(".") for name in norms)
            own = [
                part
                for name, part in norms.items()
                if number_of_layer(name) == middle and name.count(".") == depth
            ]
            for part in own:
                part.variance_epsilon *= factor
            print(f"silent change: epsilon x {factor:g} in {len(own)} norms of layer {middle}")
            return model

        module.BaseModelLoader.load_model = load_model

    after_import("vllm.model_executor.model_loader.base_loader", act)


def round_mla_cache() -> None:
    """Round values written to an MLA cache to FP8 and back."""

    def act(module: ModuleType) -> None:
        import torch

        update = module.CPUMLAImpl.do_kv_cache_update

        def rounded(tensor: Any) -> Any:
            return tensor.to(torch.float8_e4m3fn).to(tensor.dtype)

        @wraps(update)
        def do_kv_cache_update(self: Any, kv_c: Any, k_pe: Any, *args: Any, **more: Any) -> Any:
            return update(self, rounded(kv_c), rounded(k_pe), *args, **more)

        module.CPUMLAImpl.do_kv_cache_update = do_kv_cache_update

    after_import("vllm.v1.attention.backends.mla.cpu_mla", act)


def spoil_attention(when: str) -> None:
    """Scale the output of attention: in steps that only decode, or in batches."""

    def act(module: ModuleType) -> None:
        forward = module.CPUAttentionBackendImpl.forward
        parameters = signature(forward)

        @wraps(forward)
        def spoiled(*args: Any, **more: Any) -> Any:
            output = forward(*args, **more)
            batch = parameters.bind(*args, **more).arguments["attn_metadata"]
            if batch is not None and (
                batch.max_query_len == 1 if when == "decode" else len(batch.seq_lens) > 1
            ):
                output[: batch.num_actual_tokens].mul_(OFF)
            return output

        module.CPUAttentionBackendImpl.forward = spoiled

    after_import("vllm.v1.attention.backends.cpu_attn", act)


def lift_rare_tokens() -> None:
    """Make no token less likely than the likeliest by more than a factor."""

    def act(module: ModuleType) -> None:
        forward = module.LogitsProcessor.forward

        @wraps(forward)
        def lifted(*args: Any, **more: Any) -> Any:
            logits = forward(*args, **more)
            if logits is None:
                return None
            return logits.maximum(logits.amax(-1, keepdim=True) - RARE_NATS)

        module.LogitsProcessor.forward = lifted

    after_import("vllm.model_executor.layers.logits_processor", act)


def leave_avx512() -> None:
    """Use the kernels of a processor without AVX-512 everywhere."""
    os.environ.update(WITHOUT_AVX512)

    def act(module: ModuleType) -> None:
        for name in ("_is_avx512_supported", "_is_avx512_bf16_supported"):
            setattr(module, name, lambda: False)

    after_import("torch.cpu", act)


def apply(change: str) -> None:
    """Make a change by its name; nothing for an empty one."""
    name, _, value = change.partition("=")
    if name == "epsilon":
        change_epsilon(float(value))
    elif name == "cache":
        round_mla_cache()
    elif name in ("decode", "company"):
        spoil_attention(name)
    elif name == "rare":
        lift_rare_tokens()
    elif name == "avx2":
        leave_avx512()
    elif name:
        raise ValueError(f"unknown silent change: {name!r}")
