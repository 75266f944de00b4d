"""A server's needs: by its flags, its lane, and the plan of its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.expects import Expects
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.fleet import needs
from pytest_vllm_gates.fleet.shards import Needs

if TYPE_CHECKING:
    from pathlib import Path

MINIATURE = Checkpoint("miniature", str(miniatures.path("qwen3.5")))


def test_lane_of_a_cpu_needs_no_device(tmp_path: Path) -> None:
    assert needs.of(MINIATURE, lanes.load("cpu", tmp_path), {"tensor_parallel_size": 2}) == Needs()


def test_lane_of_gpus_names_their_number_kind_and_memory(tmp_path: Path) -> None:
    lane = lanes.load("cuda", tmp_path).model_copy(update={"expects": Expects(gpu="h100")})
    found = needs.of(MINIATURE, lane, {"tensor_parallel_size": 2})
    assert (found.gpus, found.gpu) == (2, "h100")
    assert 1 <= found.gpu_memory_gib < 10  # weights of 2 MB, and the runtime
    assert str(replace(found, gpu_memory_gib=3)) == "2 h100s with 3 GiB"


def test_a_larger_share_needs_less() -> None:
    whole = needs.memory_gib(MINIATURE, {"gpu_memory_utilization": 1.0})
    assert needs.memory_gib(MINIATURE, {"gpu_memory_utilization": 0.25}) >= 3 * whole


@pytest.mark.parametrize(
    ("source", "serve"),
    [("org/nobody-has-it", {}), ("/nowhere", {}), (MINIATURE.source, {"max_model_len": "many"})],
)
def test_missing_memory_plan_gives_no_figure(source: str, serve: dict[str, object]) -> None:
    assert needs.memory_gib(Checkpoint("own", source), serve) == 0
