"""The memory of the weights: read from their files, or else counted and quantised.

    bytes = sum over parts of parameters * bytes of one, scales included

The projections and the experts are quantised as a rule; embeddings, head, norms, routers and the
vision tower keep the model's own type. A checkpoint's list of exceptions is read as far as it names
a whole role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.config import TEXT_OF, model_bytes, model_types
from pytest_vllm_gates.memory_plan.parameters import Role, parts
from pytest_vllm_gates.memory_plan.types import Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.memory_plan.types import ModelShape, Serving

PROJECTIONS = (Role.ATTENTION, Role.DENSE, Role.EXPERTS)
SCALE_BYTES = 2
BLOCK_SCALE = 4 / (128 * 128)
# Bytes of a parameter by method, where the method says it all.
BY_METHOD = {
    "fp8": 1 + BLOCK_SCALE,
    "fbgemm_fp8": 1.0,
    "ptpc_fp8": 1.0,
    "modelopt": 1.0,
    "modelopt_fp4": 0.5 + 1 / 16,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "gpt_oss_mxfp4": 0.5 + 1 / 32,
    "mxfp8": 1 + 1 / 32,
    "experts_int8": 1.0,
}
# Methods that say how many bits they keep.
BY_BITS = (
    "awq",
    "awq_marlin",
    "gptq",
    "gptq_marlin",
    "auto-round",
    "auto_round",
    "intel/auto-round",
)
EXPERTS_ONLY = ("mxfp4", "gpt_oss_mxfp4", "experts_int8")
BITSANDBYTES = ("bitsandbytes", "bnb")


def weights(shape: ModelShape, serving: Serving, in_files: int | None) -> Weights | None:
    """Return the weights' size, or None where it is unknown."""
    devices = serving.tensor_parallel_size * serving.pipeline_parallel_size
    if serving.quantization is not None:
        _check(serving.quantization)
    if in_files is not None:
        return Weights(in_files, in_files // devices, "the checkpoint's files")
    try:
        counted_parts = parts(shape)
    except (UserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # What the count needs and the cache does not may be missing: then the size is unknown.
        return None
    bytes_by_role = _bytes_of(shape, serving)
    if counted_parts is None or bytes_by_role is None:
        return None
    plain = model_bytes(shape, serving)
    total = sum(part.count * bytes_by_role.get(part.role, plain) for part in counted_parts)
    replicated = sum(
        part.count * bytes_by_role.get(part.role, plain)
        for part in counted_parts
        if part.replicated
    )
    stages = serving.pipeline_parallel_size
    unsure = ["the weights' size is counted from the config; the checkpoint's files know it"]
    if TEXT_OF.get(shape.model_type, shape.model_type) not in model_types():
        unsure.append(f"the type {shape.model_type!r} is not known here: counted like Llama's")
    if any(part.role is Role.VISION for part in counted_parts):
        unsure.append("the vision tower is counted like a plain transformer")
    return Weights(
        bytes_total=round(total),
        bytes_per_device=round((total - replicated) / devices + replicated / stages),
        source="counted from the config",
        parameters=sum(part.count for part in counted_parts),
        unsure=tuple(unsure),
    )


def unknown_method(shape: ModelShape) -> str | None:
    """Return the checkpoint's quantisation when it is one whose size is not known here."""
    method = _method(shape.quantisation)
    return method if method and _size(method, shape.quantisation) is None else None


def _check(method: str) -> None:
    known_methods = {*BY_METHOD, *BY_BITS, *BITSANDBYTES, "compressed-tensors"}
    if method.lower() not in known_methods:
        guess = nearest(method, known_methods)
        hint = f"; did you mean {guess!r}?" if guess else ""
        known = ", ".join(sorted(known_methods))
        raise UserError(f"--quantization {method!r} is not known{hint}\nknown: {known}")


def _bytes_of(shape: ModelShape, serving: Serving) -> dict[Role, float] | None:
    """Return the bytes of a quantised parameter by role; None where the method is not known."""
    method = _method(shape.quantisation)
    if method:
        size = _size(method, shape.quantisation)
        if size is None:
            return None
        roles = [role for role in PROJECTIONS if not _excepted(role, shape.quantisation)]
    elif serving.quantization:
        method = serving.quantization.lower()
        size, roles = _size(method, {}), list(PROJECTIONS)
        if size is None:
            return None
    else:
        return {}
    if method in EXPERTS_ONLY:
        roles = [Role.EXPERTS]
    return dict.fromkeys(roles, size)


def _method(quantisation: Mapping[str, Any]) -> str:
    return str(quantisation.get("quant_method") or "").lower().replace("compressed_", "compressed-")


def _size(method: str, quantisation: Mapping[str, Any]) -> float | None:
    """Return the bytes of one quantised parameter, scales and zero points included."""
    if method in BY_BITS:
        bits = quantisation.get("bits") or quantisation.get("w_bit") or 4
        return _grouped(bits, quantisation.get("group_size") or 128, zeros=True)
    if method in BITSANDBYTES:
        return 1.0 if quantisation.get("load_in_8bit") else 0.5 + 4 / 64
    if method == "compressed-tensors":
        return _compressed(quantisation)
    if method.startswith("modelopt"):
        algorithm = quantisation.get("quant_algo")
        inner = quantisation.get("quantization")
        if algorithm is None and isinstance(inner, dict):
            algorithm = inner.get("quant_algo")
        if "FP4" in str(algorithm).upper():
            return BY_METHOD["nvfp4"]
    return BY_METHOD.get(method)


def _compressed(quantisation: Mapping[str, Any]) -> float | None:
    groups = quantisation.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        return None
    group = next(iter(groups.values()))
    weight_format = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weight_format, dict):
        return None
    return _grouped(weight_format.get("num_bits"), weight_format.get("group_size"), zeros=False)


def _grouped(bits: object, group: object, *, zeros: bool) -> float | None:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 16:  # noqa: PLR2004
        return None
    size = bits / 8
    if isinstance(group, int) and group > 0:
        size += (SCALE_BYTES + (bits / 8 if zeros else 0)) / group
    return size


def _excepted(role: Role, quantisation: Mapping[str, Any]) -> bool:
    """Return whether the checkpoint leaves a whole role as it is."""
    exceptions = quantisation.get("ignore") or quantisation.get("modules_to_not_convert") or ()
    words = {Role.ATTENTION: "attn", Role.DENSE: "mlp", Role.EXPERTS: "experts"}
    names = [str(name) for name in exceptions if isinstance(name, str)]
    # A name with a layer's number in it speaks of that layer only.
    return any(
        words[role] in name
        and not any(letter.isdigit() for letter in name)
        and "shared" not in name
        and "gate" not in name
        for name in names
    )
