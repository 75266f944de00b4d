"""The overlay's repair of the base model's tokens in a batch with LoRA adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lanes.overlaid import lines_of, write_module

if TYPE_CHECKING:
    from pathlib import Path

# vLLM's operator in numpy; its package imports it from the module as vLLM's does.
OPERATORS = """
def bgmv_shrink(inputs, weights, outputs, indices, scaling=1.0):
    outputs[:] = scaling * (weights[indices] @ inputs[:, :, None])[:, :, 0]

def sgmv_shrink(inputs, weights, outputs, indices, scaling):
    bgmv_shrink(inputs, weights, outputs, indices, scaling)
"""
ASKED = """
import numpy
from vllm.lora.ops.torch_ops import bgmv_shrink, sgmv_shrink

weights = numpy.array([[[1.0, 1.0]], [[10.0, 10.0]]])  # of two adapters, rank 1
for operator in (bgmv_shrink, sgmv_shrink):
    outputs = numpy.zeros((3, 1))
    operator(numpy.ones((3, 2)), weights, outputs, numpy.array(INDICES), 2.0)
    print(outputs[:, 0].tolist())
"""


@pytest.mark.parametrize(
    ("indices", "right", "wrong"),
    [
        ([0, 1, -1], [4.0, 40.0, 0.0], [4.0, 40.0, 40.0]),
        ([1, 0, 1], [40.0, 4.0, 40.0], [40.0, 4.0, 40.0]),
    ],
)
def test_a_token_without_an_adapter_gets_no_update(
    tmp_path: Path, indices: list[int], right: list[float], wrong: list[float]
) -> None:
    write_module(tmp_path, "vllm.lora.ops.torch_ops.lora_ops", OPERATORS)
    package = tmp_path / "vllm" / "lora" / "ops" / "torch_ops" / "__init__.py"
    package.write_text("from .lora_ops import bgmv_shrink, sgmv_shrink\n")
    code = ASKED.replace("INDICES", str(indices))
    assert lines_of(code, tmp_path) == [str(right)] * 2
    assert lines_of(code, tmp_path, left_out="base_beside_adapters") == [str(wrong)] * 2
