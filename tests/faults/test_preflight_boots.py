"""Preflight gives the same message as the boot: each failure before a boot and from real vLLM."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from e2e import gates, own_lane
from e2e.served import subject_of
from sweeps import sweep

from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Wrong:
    """A lane or a checkpoint that cannot boot, and the expected message."""

    check: str
    id: str
    """The name of the failure."""
    both: str
    """In the messages of both preflight and the server's log."""
    serve: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    """The changes in `config.json`."""


WRONG = [
    Wrong(
        "max_model_len",
        "MAXLEN_CFG",
        "User-specified max_model_len (40000) is greater than the derived max_model_len",
        {"max_model_len": 40_000},
    ),
    Wrong(
        "kv_cache",
        "KV_TOO_SMALL",
        "To serve at least one request",
        {"kv_cache_memory_bytes": 2_000_000},
    ),
    Wrong("parsers", "CFG", "no_such_parser", {"reasoning_parser": "no_such_parser"}),
    Wrong(
        "cpu_ranks",
        "TP_CPU",
        "Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers",
        {"tensor_parallel_size": 2},
    ),
    Wrong(
        "architecture",
        "ARCH_UNKNOWN_VLLM",
        "NoSuchForCausalLM",
        config={"architectures": ["NoSuchForCausalLM"]},
    ),
    Wrong("model_type", "ARCH_UNKNOWN_HF", "no_such_type", config={"model_type": "no_such_type"}),
]


def lane(folder: Path, wrong: Wrong, *, is_waived: bool) -> None:
    """Write the lane `wrong` of a project."""
    own_lane.write(
        folder,
        "wrong",
        env={"VLLM_CPU_KVCACHE_SPACE": None, "CPU_VISIBLE_MEMORY_NODES": "0"},
        serve={"kv_cache_memory_bytes": 2**30} | wrong.serve,
        waive={wrong.check: "to hear what the server says"} if is_waived else {},
    )


@pytest.mark.parametrize(
    "wrong",
    sweep(WRONG, lambda wrong: wrong.check, lambda wrong: wrong.check == "parsers"),
)
def test_boot_fails_with_the_message_of_preflight(
    wrong: Wrong,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, miniature = subject_of(gates.MODEL)
    weights = shutil.copytree(miniature.source, tmp_path / "weights" / "own")
    config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    (weights / "config.json").write_text(json.dumps(config | wrong.config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    lane(tmp_path, wrong, is_waived=False)
    arguments = ["--model", gates.MODEL, "--checkpoint", str(weights), "--lane", "wrong"]
    assert main(["preflight", *arguments, "--check", wrong.check]) == 1
    assert wrong.both in capsys.readouterr().out

    lane(tmp_path, wrong, is_waived=True)
    ran = gates.run(tmp_path, "--checkpoint", str(weights), "--lane", "wrong", "-m", "boot")
    assert ran.outcomes() == {"boot": "FAIL"}, ran.output
    words = ran.reasons("boot")
    assert "the server ended before it was ready" in words
    assert wrong.both in words
    assert wrong.id in words.splitlines()[0]
