"""The overlay's repair of routing by sigmoid without groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lanes.overlaid import lines_of, write_module

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "vllm.model_executor.layers.fused_moe.router.cpu_router"
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
    write_module(tmp_path, MODULE, ROUTER)
    code = f"from {MODULE} import CPURouter\nCPURouter({arguments})._compute_routing(None)"
    assert lines_of(code, tmp_path) == [routed]
