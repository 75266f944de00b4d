"""Reports of shards go through a store, and every run of a shard is one of its generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gates_store import team_stores

from fleet.made_fleets import leave, plan_of, served, verdict
from pytest_vllm_gates.fleet import merged, pushed, reports

if TYPE_CHECKING:
    from pathlib import Path

PLAN = plan_of(served("qwen3.5"), served("gemma"))


@pytest.mark.parametrize("kind", team_stores.KINDS)
def test_reports_are_merged_from_a_store(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = PLAN.shards
    with team_stores.made(kind, tmp_path, monkeypatch) as store:
        leave(tmp_path / "a", PLAN, first)
        pushed.push(store, PLAN, first, tmp_path / "a")
        assert pushed.holds(store)
        beside = tmp_path / "report"
        fleet = merged.merge(PLAN, reports.read([pushed.pull(store, PLAN, beside)]))
        assert fleet.missing == (second,)
        for outcome in ("PASS", "FAIL"):
            document = verdict(second, {"stop": outcome})
            leave(tmp_path / outcome, PLAN, second, document)
            pushed.push(store, PLAN, second, tmp_path / outcome)
        fleet = merged.merge(PLAN, reports.read([pushed.pull(store, PLAN, beside)]))
    assert not fleet.missing
    assert [sentence for sentence in fleet.doubled if merged.CONTRADICTORY in sentence]
    local = merged.merge(PLAN, reports.read([tmp_path / name for name in ("a", "PASS", "FAIL")]))
    for key in ("promotion", "cells"):
        assert merged.document(PLAN, local)[key] == merged.document(PLAN, fleet)[key]


def test_plans_share_a_store(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    other = plan_of(served("qwen3.5", gates=["boot"]))
    leave(tmp_path / "a", other, other.shards[0])
    pushed.push(store, other, other.shards[0], tmp_path / "a")
    assert reports.read([pushed.pull(store, PLAN, None)]) == []


def test_folder_of_reports_is_not_a_store(tmp_path: Path) -> None:
    leave(tmp_path / "shards" / "a", PLAN, PLAN.shards[0])
    assert not pushed.holds(str(tmp_path / "shards"))
