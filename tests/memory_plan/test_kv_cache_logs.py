"""The plan against what real servers printed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.memory_plan.plan import allows, plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Room, Serving

HERE = Path(__file__).parent
MODELS: dict[str, Any] = tomllib.loads((HERE / "kv_cache_models.toml").read_text())
LOGS: list[dict[str, Any]] = tomllib.loads((HERE / "kv_cache_logs.toml").read_text())["log"]


@pytest.mark.parametrize("log", LOGS, ids=[f"{log['model']}-{log['tokens']}" for log in LOGS])
def test_printed_figures_lie_where_the_printed_memory_allows(log: dict[str, Any]) -> None:
    serving = Serving(vllm_version=log["version"], **log["flags"])
    memory_plan = plan(
        shape_of(MODELS[log["model"]]), serving, Room(kv_memory=int(log["gib"] * GIB))
    )
    assert memory_plan.low and memory_plan.high
    assert memory_plan.low.tokens <= log["tokens"] <= memory_plan.high.tokens
    assert allows(memory_plan, log["tokens"], log.get("concurrency"))


def test_figures_of_another_server_are_not_allowed() -> None:
    serving, room = Serving(max_model_len=8192), Room(kv_memory=10 * GIB)
    memory_plan = plan(shape_of(MODELS["llama-3-1-8b"]), serving, room)
    assert memory_plan.pool and memory_plan.pool.tokens == 81920
    assert allows(memory_plan, 81920, 10.0)
    assert not allows(memory_plan, 81920, 10.2)
    assert not allows(memory_plan, 80000)
    refused_plan = plan(shape_of({"model_type": "deepseek_v4"}), serving, room)
    assert allows(refused_plan, 1)
