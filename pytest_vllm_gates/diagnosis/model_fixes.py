"""Selects the fixes of a failure that fit the model, by its `config.json`.

The attention heads limit the tensor-parallel sizes, the context limits `--max-model-len`, the
quantisation decides whether a quantised checkpoint or cache is still possible, and the type of
model decides whether float16 is possible.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.checkpoints.files import Model

SIZED = re.compile(r"`--tensor-parallel-size (\d+)`")
LENGTH = re.compile(r"`--max-model-len (\d+)`")
HEADS = re.compile(r"`--tensor-parallel-size` that divides num_attention_heads.*$")
QUANTISED = re.compile(r"(?:,? or )?(?:serve )?a quantised checkpoint[^:;,]*(?:\([^)]*\))?")
BY_FLAG = re.compile(r"(?:,? or )?`--quantization \w+`[^,;]*")
FP8_CACHE = "--kv-cache-dtype fp8"
HALF = "`--dtype half`"
NOT_IN_HALF = ("gemma2", "gemma3", "gemma3_text", "glm4")
"""Types that vLLM 0.32 does not serve in float16 (`_FLOAT16_NOT_SUPPORTED_MODELS`)."""
LARGEST_PARALLEL = 64
CONTEXTS = ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions")


def fitted(fixes: Iterable[str], model: Model) -> tuple[str, ...]:
    """Return the fixes that are possible with this model; all of them if none would be left."""
    fixes = tuple(fixes)
    kept = tuple(dict.fromkeys(fit for fix in fixes if (fit := _fitted(fix, model))))
    return kept or fixes


def _fitted(fix: str, model: Model) -> str:
    """Return a fix, adapted to this model; empty if the model makes it impossible."""
    heads, context = _heads(model), model.integer(*CONTEXTS)
    if heads:
        fix = SIZED.sub(lambda match: _size(match, heads), fix)
        if HEADS.search(fix):
            sizes = ", ".join(map(str, _sizes(heads)))
            fix = HEADS.sub(f"`--tensor-parallel-size` that divides {heads}: {sizes}", fix)
    length = LENGTH.search(fix)
    if length and context and int(length[1]) > context:
        return ""
    if _method(model.config):
        fix = BY_FLAG.sub("", QUANTISED.sub("", fix)).strip(" ,;")
        if fix.endswith((":", "is the weights")):
            return ""
    if FP8_CACHE in fix and _fp8_cache(model.config):
        return ""
    if HALF in fix and (model.config.get("model_type") in NOT_IN_HALF):
        return f"`--dtype float32`: vLLM does not serve {model.config['model_type']} in float16"
    return fix


def _heads(model: Model) -> int | None:
    heads = model.integer("num_attention_heads", "n_head", "n_heads")
    return heads if heads and heads > 0 else None


def _sizes(heads: int) -> list[int]:
    return [size for size in range(1, min(heads, LARGEST_PARALLEL) + 1) if heads % size == 0]


def _size(match: re.Match[str], heads: int) -> str:
    """Return the flag with the next size that divides the heads."""
    wanted = int(match[1])
    size = next((size for size in _sizes(heads) if size >= wanted), _sizes(heads)[-1])
    return f"`--tensor-parallel-size {size}`"


def _method(config: Mapping[str, Any]) -> str:
    table = config.get("quantization_config")
    method = table.get("quant_method") if isinstance(table, dict) else None
    return method if isinstance(method, str) else ""


def _fp8_cache(config: Mapping[str, Any]) -> bool:
    """Return whether the checkpoint declares an 8-bit cache, which `auto` uses."""
    table = config.get("quantization_config")
    if not isinstance(table, dict):
        return False
    scheme = table.get("kv_cache_scheme") or table.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        return scheme.get("num_bits") == 8  # noqa: PLR2004 - bits of fp8
    return isinstance(scheme, str) and scheme.lower().startswith("fp8")
