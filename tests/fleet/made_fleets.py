"""Plans and shards' reports for the tests of fleets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import __version__
from pytest_vllm_gates.fleet import reports
from pytest_vllm_gates.fleet.durations import Durations, Seconds
from pytest_vllm_gates.fleet.plan import Served, compose
from pytest_vllm_gates.fleet.shards import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.fleet.shards import FleetPlan, Shard

SECONDS = Seconds(boot=60, gate=20, features=120)
GATES = ("boot", "stop", "tools", "features")


def served(
    family: str, lane: str = "cpu", gates: Sequence[str] = GATES, needs: Needs | None = None
) -> Served:
    return Served(family, lane, tuple(gates), needs or Needs())


def plan_of(
    *wanted: Served, features: Sequence[str] = (), shard_s: float | None = None
) -> FleetPlan:
    return compose(wanted or [served("qwen3.5")], features, Durations(SECONDS), shard_s)


def verdict(
    shard: Shard,
    outcomes: Mapping[str, str] | None = None,
    *,
    versions: Mapping[str, str] | None = None,
    evidence: Mapping[str, Any] | None = None,
    suite: str = __version__,
    created: str = "2026-11-27T00:00:00+00:00",
) -> dict[str, Any]:
    """Return the parts of a shard's `verdict.json` that a fleet reads."""
    gates = []
    for gate in shard.gates:
        outcome = (outcomes or {}).get(gate, "PASS")
        reason = "" if outcome == "PASS" else f"{gate} failed"
        test = {
            "test": f"test_{gate}", "outcome": outcome, "reason": reason, "duration_s": 2.0,
            "evidence": dict(evidence or {}),
        }  # fmt: skip
        gates.append({"gate": gate, "outcome": outcome, "reason": reason, "duration_s": 2.0,
                      "tests": [test]})  # fmt: skip
    return {
        "format": "pytest-vllm-gates/verdict",
        "version": 1,
        "tool": {"name": "pytest-vllm-gates", "version": suite},
        "created": created,
        "promotion": "HOLD",
        "lane": {"name": shard.lane, "versions": dict(versions or {"vllm": "0.32.0"}), "serve": {}},
        "families": [
            {"name": shard.family, "boot": {"times": {"first_chat_s": 30.0}}, "gates": gates}
        ],
    }


def leave(
    folder: Path, plan: FleetPlan, shard: Shard, document: Mapping[str, Any] | None = None
) -> None:
    """Write a shard's report as `vllm-gates shard` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    reports.begin(folder, plan, shard)
    text = json.dumps(document or verdict(shard))
    (folder / "verdict.json").write_text(text, encoding="utf-8")


def leave_all(folder: Path, plan: FleetPlan) -> None:
    for shard in plan.shards:
        leave(folder / shard.name, plan, shard)
