"""How a quantised module stores its weights: bits, groups, scales and zero points.

The formats follow vLLM 0.32, `model_executor/layers/quantization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BITS = 16


@dataclass(frozen=True)
class Precision:
    """The size of a quantised weight."""

    bits: float
    group: int = 0
    """Weights that share one scale; 0 is the whole tensor, whose scale does not count."""
    scale_bytes: float = 2.0
    zero_bits: float = 0.0
    by_row: bool = False
    """Whether each row has its own scale, whatever its length."""

    def size(self, columns: int) -> float:
        """Return the bytes of one weight of a module with `columns` inputs."""
        shared_by = columns if self.by_row else self.group
        scales = (self.scale_bytes + self.zero_bits / 8) / shared_by if shared_by else 0.0
        return self.bits / 8 + scales


FP8 = Precision(8)
FP8_BLOCKS = Precision(8, 128 * 128, 4)
FP8_ROWS = Precision(8, scale_bytes=4, by_row=True)
NVFP4 = Precision(4, 16, 1)
MXFP4 = Precision(4, 32, 1)
MXFP8 = Precision(8, 32, 1)
INT4 = Precision(4, 128)
NORMAL_FLOAT = Precision(4, 64, 4)

BY_METHOD = {
    "fp8": FP8_BLOCKS,
    "deepseek_fp8": FP8_BLOCKS,
    "fbgemm_fp8": FP8_ROWS,
    "ptpc_fp8": FP8_ROWS,
    "modelopt": FP8,
    "modelopt_fp4": NVFP4,
    "nvfp4": NVFP4,
    "modelopt_mxfp8": MXFP8,
    "mxfp4": MXFP4,
    "gpt_oss_mxfp4": MXFP4,
    "mxfp8": MXFP8,
    "experts_int8": FP8_ROWS,
}
# ModelOpt's `quant_algo` (`QUANT_ALGOS` of modelopt.py).
BY_ALGORITHM = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_ROWS,
    "FP8_PB_WO": FP8_BLOCKS,
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "MXFP8": MXFP8,
    "MXFP4": MXFP4,
    "W4A16_AWQ": INT4,
    "W4A8_AWQ": INT4,
}


def grouped(bits: object, group: object, *, zeros: bool) -> Precision | None:
    """Return integers of `bits` bits with 16-bit scales; None if `bits` is not a valid number."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_BITS:
        return None
    if not isinstance(group, int) or isinstance(group, bool) or group <= 0:
        return Precision(bits, zero_bits=0)
    return Precision(bits, group, zero_bits=bits if zeros else 0)


def of_group(weight_format: object) -> Precision | None:
    """Return the precision of a compressed-tensors group, from its table `weights`."""
    if not isinstance(weight_format, dict):
        return None
    bits, group = weight_format.get("num_bits"), weight_format.get("group_size")
    strategy, is_float = weight_format.get("strategy"), weight_format.get("type") == "float"
    plain = grouped(bits, group, zeros=False)
    if plain is None:
        return None
    block = weight_format.get("block_structure")
    if strategy == "block" and isinstance(block, list) and all(type(n) is int for n in block):
        return Precision(plain.bits, max(1, block[0] * block[-1]), 4)
    if strategy == "channel":
        return Precision(plain.bits, scale_bytes=4 if is_float else 2, by_row=True)
    if is_float and plain.bits == NVFP4.bits and plain.group:
        return Precision(plain.bits, plain.group, 1)
    return plain


def of_algorithm(place: Mapping[str, Any]) -> Precision | None:
    """Return ModelOpt's precision by its `quant_algo`; None if it is not known."""
    name = str(place.get("quant_algo") or "").upper()
    known = BY_ALGORITHM.get(name)
    if known is INT4 and isinstance(place.get("group_size"), int):
        return grouped(4, place["group_size"], zeros=False)
    return known
