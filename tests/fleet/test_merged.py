"""One verdict of many: whole fleets, and parts that are missing, doubled or foreign."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from fleet.made_fleets import leave, leave_all, plan_of, served, verdict
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet import merged, reports

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.fleet.merged import FleetVerdict
    from pytest_vllm_gates.fleet.shards import FleetPlan

PLAN = plan_of(served("glm"), served("kimi"), served("glm", "canary"), features=["ngram"])


def merge(folder: Path, plan: FleetPlan = PLAN) -> FleetVerdict:
    return merged.merge(plan, reports.read([folder]))


def test_whole_fleet_is_promoted(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    fleet = merge(tmp_path)
    assert fleet.verdict.promotion == "PROMOTE"
    assert fleet.verdict.reasons == ("all 12 applicable gates passed (12 tests)",)
    assert len({gate.family for gate in fleet.verdict.gates}) == 6


def test_one_failure_rejects_the_fleet(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    leave(tmp_path / "kimi-cpu", PLAN, PLAN.shard("kimi-cpu"),
          verdict(PLAN.shard("kimi-cpu"), {"tools": "FAIL"}))  # fmt: skip
    fleet = merge(tmp_path)
    assert fleet.verdict.promotion == "REJECT"
    assert fleet.verdict.reasons == ("kimi on cpu: tools is FAIL: tools failed",)


def test_missing_shards_hold(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    shutil.rmtree(tmp_path / "kimi-cpu")
    (tmp_path / "glm-cpu" / "verdict.json").unlink()
    fleet = merge(tmp_path)
    assert [shard.name for shard in fleet.missing] == ["glm-cpu", "kimi-cpu"]
    assert fleet.verdict.promotion == "HOLD"
    assert fleet.verdict.reasons == ("glm-cpu: no verdict", "kimi-cpu: no verdict")


def test_reruns_of_killed_shards_give_the_verdict_of_an_unbroken_run(tmp_path: Path) -> None:
    plan = plan_of(*(served(f"family{number}") for number in range(64)))
    outcomes = {"family7-cpu": {"stop": "FAIL"}, "family9-cpu": {"tools": "KNOWN"}}
    for shard in plan.shards:
        leave(tmp_path / "whole" / shard.name, plan, shard,
              verdict(shard, outcomes.get(shard.name)))  # fmt: skip
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    killed = random.Random(7).sample(plan.shards, 8)  # noqa: S311 - it hides nothing
    for shard in killed:
        (tmp_path / "broken" / shard.name / "verdict.json").unlink()
    assert {shard.name for shard in merge(tmp_path / "broken", plan).missing} == {
        shard.name for shard in killed
    }
    for shard in killed:
        later = verdict(shard, outcomes.get(shard.name), created="2026-11-28T00:00:00+00:00")
        leave(tmp_path / "broken" / shard.name, plan, shard, later)
    texts = [
        json.dumps(merged.document(plan, merge(tmp_path / name, plan)))
        for name in ("whole", "broken")
    ]
    assert texts[0] == texts[1]


def test_shard_with_two_equal_runs_does_not_block(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    leave(tmp_path / "again", PLAN, PLAN.shards[0])
    fleet = merge(tmp_path)
    (sentence,) = fleet.doubled
    assert sentence.startswith("glm-cpu ran 2 times, with one result")
    assert fleet.verdict.promotion == "PROMOTE"


def test_shard_that_contradicts_itself_counts_as_its_worst(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    shard = PLAN.shard("glm-cpu")
    leave(tmp_path / "again", PLAN, shard, verdict(shard, {"stop": "FAIL"}))
    fleet = merge(tmp_path)
    assert "glm on cpu: stop is FAIL: stop failed" in fleet.verdict.reasons
    (sentence,) = fleet.doubled
    assert "they contradict one another: stop: test_stop is FAIL, then PASS" in sentence


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("plan", "is of another plan"),
        ("suite", "run by version 0.0.1 of the gates"),
        ("record", "no shard.json beside its verdict"),
        ("family", "judges kimi on cpu: it is not glm-cpu"),
        ("bundle", "its bundle differs from 3 of 4 shards of lane cpu: vllm is 0.31.0"),
    ],
)
def test_foreign_shards_are_left_out_and_named(kind: str, says: str, tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    shard, folder = PLAN.shard("glm-cpu"), tmp_path / "glm-cpu"
    match kind:
        case "plan":
            leave(folder, plan_of(served("glm"), served("phi")), shard)
        case "suite":
            leave(folder, PLAN, shard, verdict(shard, suite="0.0.1"))
        case "record":
            (folder / "shard.json").unlink()
        case "family":
            leave(folder, PLAN, shard, verdict(PLAN.shard("kimi-cpu")))
        case "bundle":
            leave(folder, PLAN, shard, verdict(shard, versions={"vllm": "0.31.0"}))
    fleet = merge(tmp_path)
    (sentence,) = fleet.foreign
    assert says in sentence
    assert [shard.name for shard in fleet.missing] == ["glm-cpu"]
    assert fleet.verdict.promotion == "HOLD"


def test_gate_that_does_not_apply_does_not_block(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    shard = PLAN.shard("glm-cpu")
    document = verdict(shard, {"tools": "N/A"})
    document["families"][0]["gates"][-1]["tests"] = []
    leave(tmp_path / "glm-cpu", PLAN, shard, document)
    assert merge(tmp_path).verdict.promotion == "PROMOTE"


def test_gate_that_did_not_run_in_its_shard_holds(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    shard = PLAN.shard("glm-cpu")
    document = verdict(shard)
    del document["families"][0]["gates"][-1]
    leave(tmp_path / "glm-cpu", PLAN, shard, document)
    assert merge(tmp_path).verdict.reasons == ("glm on cpu: tools did not run",)


def test_report_of_the_compared_lane_is_not_the_shards(tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    shutil.copytree(tmp_path / "kimi-cpu", tmp_path / "glm-cpu" / "against")
    assert merge(tmp_path).verdict.promotion == "PROMOTE"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "another"}'])
def test_invalid_verdict_is_refused(text: str, tmp_path: Path) -> None:
    leave_all(tmp_path, PLAN)
    (tmp_path / "glm-cpu" / "verdict.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"glm-cpu/verdict\.json"):
        reports.read([tmp_path])


def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        reports.read([tmp_path / "nowhere"])
