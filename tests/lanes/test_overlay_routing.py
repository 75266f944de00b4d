"""The overlay's repair of routing by sigmoid without groups."""

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
FOLDERS = ("vllm", "model_executor", "layers", "fused_moe", "router")
ROUTER = """
class CPURouter:
    def __init__(self, scoring_func, use_grouped_topk=False, custom_routing_function=None):
        self.scoring_func = scoring_func
        self.use_grouped_topk = use_grouped_topk
        self.num_expert_group = self.topk_group = 8 if use_grouped_topk else None
        self.custom_routing_function = custom_routing_function
    def _compute_routing(self, hidden_states):
        print(self.scoring_func, self.use_grouped_topk, self.num_expert_group, self.topk_group)
"""


@pytest.mark.parametrize(
    ("arguments", "routed"),
    [
        ("'sigmoid'", "sigmoid True 1 1"),
        ("'softmax'", "softmax False None None"),
        ("'sigmoid', True", "sigmoid True 8 8"),
        ("'sigmoid', custom_routing_function=print", "sigmoid False None None"),
    ],
)
def test_sigmoid_without_groups_becomes_one_group(
    tmp_path: Path, arguments: str, routed: str
) -> None:
    folder = tmp_path
    for name in FOLDERS:
        folder /= name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (folder / "cpu_router.py").write_text(ROUTER)
    code = (
        f"from {'.'.join(FOLDERS)}.cpu_router import CPURouter\n"
        f"CPURouter({arguments})._compute_routing(None)"
    )
    path = os.pathsep.join(map(str, (OVERLAY, tmp_path)))
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == routed
