"""The overlay's repair of the base model's tokens in a batch with LoRA adapters."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes

if TYPE_CHECKING:
    from pathlib import Path

OVERLAY = lanes.SHIPPED / "cpu-overlay"
FOLDERS = ("vllm", "lora", "ops", "torch_ops")
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
    folder = tmp_path
    for name in FOLDERS:
        folder /= name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (folder / "lora_ops.py").write_text(OPERATORS)
    (folder / "__init__.py").write_text("from .lora_ops import bgmv_shrink, sgmv_shrink\n")
    for left_out, outputs in (("", right), ("base_beside_adapters", wrong)):
        result = subprocess.run(
            [sys.executable, "-c", ASKED.replace("INDICES", str(indices))],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, (OVERLAY, tmp_path))),
                "VLLM_GATES_WITHOUT_REPAIRS": left_out,
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.splitlines() == [str(outputs)] * 2
