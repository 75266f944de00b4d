"""The memory of the weights: read from their files, or else counted and quantised.

    bytes = sum over parts of parameters * bytes of one, scales included

`quantisation` reads the precision of each part, and `device_shares` computes a device's share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import device_shares, quantisation, rotary, vision_tower
from pytest_vllm_gates.memory_plan.config import TEXT_OF, model_bytes, model_types
from pytest_vllm_gates.memory_plan.parameter_parts import Role
from pytest_vllm_gates.memory_plan.parameters import parts, tied
from pytest_vllm_gates.memory_plan.types import Weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart
    from pytest_vllm_gates.memory_plan.precision import Precision
    from pytest_vllm_gates.memory_plan.types import ModelShape, Serving


def weights(shape: ModelShape, serving: Serving, in_files: int | None) -> Weights | None:
    """Return the weights' size, or None if it is unknown."""
    if serving.quantization is not None:
        _check(serving.quantization)
    sizes = _sizes(shape, serving)
    if in_files is not None:
        return _from_files(shape, serving, in_files, sizes)
    if sizes is None:
        return None
    total = sum(size for _, size in sizes)
    unsure = ["the weights' size is counted from the config; the checkpoint's files are exact"]
    if TEXT_OF.get(shape.model_type, shape.model_type) not in model_types():
        unsure.append(f"the type {shape.model_type!r} is not known here: counted like Llama's")
    has_tower = any(part.role is Role.VISION for part, _ in sizes)
    if has_tower and not vision_tower.is_known(shape.raw_config):
        unsure.append("the vision tower is counted like a plain transformer")
    return Weights(
        bytes_total=round(total),
        bytes_per_device=round(max(_shares(sizes, shape, serving)))
        + rotary.bytes_of(shape, serving),
        source="counted from the config",
        parameters=sum(part.count for part, _ in sizes),
        unsure=tuple(unsure),
    )


def _sizes(shape: ModelShape, serving: Serving) -> list[tuple[ParameterPart, float]] | None:
    """Return the parts with their bytes; None if they cannot be counted."""
    try:
        counted_parts = parts(shape)
    except (UserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # A key that only the count needs may be missing: then the size is unknown.
        return None
    precision_of = _reader(shape, serving)
    if counted_parts is None or precision_of is None:
        return None
    plain = model_bytes(shape, serving)
    return [(part, _size(part, precision_of(part), plain)) for part in counted_parts]


def _from_files(
    shape: ModelShape,
    serving: Serving,
    in_files: int,
    sizes: list[tuple[ParameterPart, float]] | None,
) -> Weights:
    """Return the files' bytes, divided over the devices like the counted parts."""
    on_device: float = in_files / (serving.tensor_parallel_size * serving.pipeline_parallel_size)
    total = sum(size for _, size in sizes) if sizes else 0
    if sizes and total:
        on_device = in_files * max(_shares(sizes, shape, serving)) / total
    on_device += rotary.bytes_of(shape, serving)
    return Weights(in_files, int(on_device), "the checkpoint's files")


def _shares(
    sizes: list[tuple[ParameterPart, float]], shape: ModelShape, serving: Serving
) -> list[float]:
    return device_shares.per_stage(sizes, shape, serving, tied=tied(shape))


def unknown_method(shape: ModelShape) -> str | None:
    """Return the checkpoint's quantisation if its size is not known here."""
    method = quantisation.method_of(shape.quantisation)
    return method if method and quantisation.reader(method, shape.quantisation) is None else None


def _check(method: str) -> None:
    if method.lower() not in quantisation.KNOWN:
        guess = nearest(method, quantisation.KNOWN)
        hint = f"; did you mean {guess!r}?" if guess else ""
        known = ", ".join(sorted(quantisation.KNOWN))
        raise UserError(f"--quantization {method!r} is not known{hint}\nknown: {known}")


def _reader(
    shape: ModelShape, serving: Serving
) -> Callable[[ParameterPart], Precision | None] | None:
    """Return a function that gives a part's precision; None if the method is not known."""
    method = quantisation.method_of(shape.quantisation)
    if method:
        return quantisation.reader(method, shape.quantisation)
    if serving.quantization:
        return quantisation.reader(serving.quantization.lower(), {})
    return lambda _: None


def _size(part: ParameterPart, precision: Precision | None, plain: int) -> float:
    return part.count * (precision.size(part.columns) if precision else plain)
