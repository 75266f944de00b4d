"""The overlay's repair of the type of a packed router weight."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.of_release import OVERLAY_SWITCH

if TYPE_CHECKING:
    from pathlib import Path

OVERLAY = lanes.SHIPPED / "cpu-overlay"
FOLDERS = ("vllm", "model_executor", "layers")
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
    ("dtype", "removed", "left"),
    [
        ("float32", True, "float32 0"),
        ("bfloat16", True, "bfloat16 0"),
        ("float32", False, "float32 512"),
    ],
)
def test_an_emptied_weight_keeps_its_type(
    tmp_path: Path, dtype: str, removed: bool, left: str
) -> None:
    folder = tmp_path
    for name in FOLDERS:
        folder /= name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (folder / "utils.py").write_text(UTILS)
    code = (
        f"from {'.'.join(FOLDERS)}.utils import Layer, dispatch_cpu_unquantized_gemm\n"
        f"layer = Layer({dtype!r})\n"
        f"dispatch_cpu_unquantized_gemm(layer, remove_weight={removed})\n"
        "print(layer.weight.dtype, layer.weight.numel())"
    )
    path = os.pathsep.join(map(str, (OVERLAY, tmp_path)))
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, OVERLAY_SWITCH: "slow_bfloat16"},  # needs torch
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == left
