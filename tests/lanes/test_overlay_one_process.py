"""The repair that leaves the one rank of a CPU server in the engine's process."""

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

# The choice that vLLM's platform makes for one rank.
PLATFORM = """
import torch

class CpuPlatform:
    @classmethod
    def check_and_update_config(cls, vllm_config):
        if vllm_config.parallel_config.distributed_executor_backend == "uni":
            vllm_config.parallel_config.distributed_executor_backend = "mp"
"""
CONFIGURE = """
import os, sys, types
from vllm.platforms.cpu import CpuPlatform

parallel = types.SimpleNamespace(distributed_executor_backend=sys.argv[1])
CpuPlatform.check_and_update_config(types.SimpleNamespace(parallel_config=parallel))
print(parallel.distributed_executor_backend, os.environ.get("OMP_NUM_THREADS"))
"""


def configured(folder: Path, executor: str, threads: int, **environment: str) -> str:
    """Return the executor and the threads of OpenMP after the platform's check."""
    for name, text in {
        "torch.py": f"def get_num_threads(): return {threads}\n",
        "vllm/__init__.py": "",
        "vllm/platforms/__init__.py": "",
        "vllm/platforms/cpu.py": PLATFORM,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    env |= {"PYTHONPATH": os.pathsep.join([str(OVERLAY), str(folder)]), **environment}
    argv = [sys.executable, "-c", CONFIGURE, executor]
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(("threads", "left"), [(8, 7), (2, 1), (1, 1)])
def test_one_rank_stays_with_the_engine_and_leaves_the_api_a_core(
    tmp_path: Path, threads: int, left: int
) -> None:
    assert configured(tmp_path, "uni", threads) == f"uni {left}"


def test_threads_that_somebody_set_are_kept(tmp_path: Path) -> None:
    assert configured(tmp_path, "uni", 8, OMP_NUM_THREADS="3") == "uni 3"


@pytest.mark.parametrize("executor", ["mp", "ray", "package.Executor"])
def test_a_configured_executor_is_kept(tmp_path: Path, executor: str) -> None:
    assert configured(tmp_path, executor, 8) == f"{executor} None"


def test_without_the_repair_the_platform_decides(tmp_path: Path) -> None:
    left_out = {"VLLM_GATES_WITHOUT_REPAIRS": "one_process"}
    assert configured(tmp_path, "uni", 8, **left_out) == "mp None"
