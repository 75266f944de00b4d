"""A server is booted cold, then warm, and what its boots answer is looked at."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from server.launch_plans import lane
from servers import stub

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.server.patience import BootLimits
from pytest_vllm_gates.warmup import boots, marks
from pytest_vllm_gates.warmup.types import COLD, WARM

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family

LIMITS = BootLimits(boot_s=120.0, stall_s=60.0)


def task(folder: Path, family: Family, faults: str = "") -> boots.WarmupTask:
    served = lane(sys.executable, "-I", "-S", stub.__file__, "{port}", env={"FAKE": faults})
    weights = folder / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"x")
    return boots.WarmupTask(
        family, Checkpoint(name="weights", source=str(weights)), served, None, folder, folder,
        LIMITS, marks.load(), lambda _: None,
    )  # fmt: skip


def test_boots_are_cold_and_then_warm(tmp_path: Path, qwen: Family) -> None:
    done = [*boots.boots(task(tmp_path, qwen), 2)]
    assert [boot.caches for boot in done] == [COLD, COLD, WARM, WARM]
    for boot in done:
        assert sum(boot.phases_s.values()) == pytest.approx(boot.total_s)
        assert 0 < boot.health_s < boot.total_s
        assert boot.next_chat_s > 0
        assert not boot.is_early
    logs = {path.parent.name for path in tmp_path.glob("*/server.log")}
    assert logs == {"cold-1", "cold-2", "warm-1", "warm-2"}
    assert (tmp_path / "caches-1" / "vllm").is_dir()
    assert (tmp_path / "caches-2" / "triton").is_dir()


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("bangs", "the cold boot 1 gave a wrong answer: "),
        ("chat-empty", "came up healthy and failed its first prompt"),
    ],
)
def test_a_boot_that_does_not_answer_rightly_fails(
    faults: str, says: str, tmp_path: Path, qwen: Family
) -> None:
    with pytest.raises(boots.WarmupFailed, match=says):
        next(boots.boots(task(tmp_path, qwen, faults), 1))
