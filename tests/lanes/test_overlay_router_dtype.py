"""The overlay's repair of the type of a packed router weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lanes.overlaid import lines_of, write_module

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "vllm.model_executor.layers.utils"
OTHER = "slow_bfloat16"
"""Another repair of this module, which needs torch."""
UTILS = """
class Weight:
    def __init__(self, data, requires_grad=True):
        self.dtype, self.size = data
    def numel(self):
        return self.size
    def detach(self):
        return self
    def to(self, dtype):
        return dtype, self.size

class Layer:
    def __init__(self, dtype):
        self.weight = Weight((dtype, 512))

def dispatch_cpu_unquantized_gemm(layer, remove_weight):
    if remove_weight:
        layer.weight = Weight(("bfloat16", 0))
"""


@pytest.mark.parametrize(
    ("dtype", "removed", "left", "without"),
    [
        ("float32", True, "float32 0", "bfloat16 0"),
        ("bfloat16", True, "bfloat16 0", "bfloat16 0"),
        ("float32", False, "float32 512", "float32 512"),
    ],
)
def test_an_emptied_weight_keeps_its_type(
    tmp_path: Path, dtype: str, removed: bool, left: str, without: str
) -> None:
    write_module(tmp_path, MODULE, UTILS)
    code = (
        f"from {MODULE} import Layer, dispatch_cpu_unquantized_gemm\n"
        f"layer = Layer({dtype!r})\n"
        f"dispatch_cpu_unquantized_gemm(layer, remove_weight={removed})\n"
        "print(layer.weight.dtype, layer.weight.numel())"
    )
    assert lines_of(code, tmp_path, left_out=OTHER) == [left]
    assert lines_of(code, tmp_path, left_out=f"{OTHER},router_dtype") == [without]
