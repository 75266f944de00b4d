"""Real vLLM that cannot start: the boot gate gives the reason, and the other gates are blocked."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from e2e import gates, own_lane
from e2e.served import subject_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real


def only_the_boot_failed(gates_run: gates.GatesRun) -> str:
    """Check that the boot gate failed and no other; return its words."""
    outcomes = gates_run.outcomes()
    assert outcomes["boot"] == "FAIL", gates_run.output
    assert [gate for gate, outcome in outcomes.items() if outcome == "FAIL"] == ["boot"]
    assert outcomes["streaming"] == outcomes["chat_template"] == "BLOCKED"
    assert gates_run.verdict["promotion"] == "REJECT"
    assert gates_run.status == 1
    return gates_run.reasons("boot")


def test_a_flag_vllm_does_not_know_is_named_before_a_boot(tmp_path: Path) -> None:
    own_lane.write(tmp_path, "mistyped", serve={"swap_spaces": 4})
    words = only_the_boot_failed(gates.run(tmp_path, "--lane", "mistyped"))
    assert "qwen3.5 cannot boot on lane mistyped: vLLM 0.32.0 has no flag swap_spaces" in words
    assert "vLLM would exit with 'unrecognized arguments'" in words


def test_truncated_weights_are_reported_before_a_boot(tmp_path: Path) -> None:
    _, miniature = subject_of("qwen3.5")
    weights = shutil.copytree(miniature.source, tmp_path / "weights" / "miniature")
    file = weights / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4096])
    words = only_the_boot_failed(gates.run(tmp_path, "--checkpoint", str(weights)))
    assert "qwen3.5 cannot boot on lane cpu" in words
    assert "model.safetensors is cut off: " in words


@pytest.mark.slow
def test_without_the_overlay_the_model_cannot_be_inspected(tmp_path: Path) -> None:
    words = only_the_boot_failed(gates.run(tmp_path, "--no-overlay"))
    assert "the server ended before it was ready" in words
    assert "torchvision" in words
    assert "ABI" in words.splitlines()[0]
