"""Entries of a project's history, for tests."""

from __future__ import annotations

from typing import Any

from pytest_vllm_gates.history.types import HistoryEntry


def entry(number: int = 0, **changes: Any) -> HistoryEntry:
    """Return a run; `number` is its day in November."""
    fields: dict[str, Any] = {
        "created": f"2026-11-{number + 1:02d}T08:37:08+00:00",
        "command": ("pytest", "--model", "qwen3.5"),
        "promotion": "PROMOTE",
        "reasons": ("all 3 applicable gates passed (11 tests)",),
        "exit_status": 0,
        "lane": "cpu",
        "against": None,
        "machine": "AMD EPYC, 2 cores",
        "versions": {"vllm": "0.32.0", "torch": "2.11"},
        "checkpoints": {"qwen3.5": "miniature"},
        "figures": {"qwen3.5": {"boot_s": 50.0 + number, "ttft_s": 0.0589}},
    }
    return HistoryEntry(**{**fields, **changes})
