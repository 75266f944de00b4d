"""The shards, their names, and their durations."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, strategies as st

from fleet.made_fleets import SECONDS, plan_of, served, verdict
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet.durations import Durations
from pytest_vllm_gates.fleet.plan import batches, compose


def test_a_family_on_a_lane_is_one_shard_and_each_set_of_features_another() -> None:
    plan = plan_of(served("qwen3.5"), served("glm"), features=["ngram", "ngram+lora"])
    assert [shard.name for shard in plan.shards] == [
        "qwen3-5-cpu", "qwen3-5-cpu-ngram", "qwen3-5-cpu-ngram-lora",
        "glm-cpu", "glm-cpu-ngram", "glm-cpu-ngram-lora",
    ]  # fmt: skip
    first, features = plan.shards[:2]
    assert first.gates == ("boot", "stop", "tools")
    assert first.seconds == 60 + 3 * 20
    assert features.arguments == [
        "--model", "qwen3.5", "--lane", "cpu", "--features", "ngram", "-m", "features",
    ]  # fmt: skip
    assert features.seconds == 60 + 120


def test_shards_are_cut_at_the_time_that_is_wanted() -> None:
    gates = ["boot", "stop", "tools", "streaming", "sampling"]
    plan = plan_of(served("glm", gates=gates), shard_s=105.0)
    assert [(shard.name, shard.gates) for shard in plan.shards] == [
        ("glm-cpu-1", ("boot", "stop")),
        ("glm-cpu-2", ("tools", "streaming")),
        ("glm-cpu-3", ("sampling",)),
    ]


@given(st.floats(1.0, 1000.0), st.integers(1, 20))
def test_every_gate_is_in_one_shard(shard_s: float, count: int) -> None:
    gates = [f"gate{number}" for number in range(count)]
    plan = plan_of(served("glm", gates=gates), shard_s=shard_s)
    assert [gate for shard in plan.shards for gate in shard.gates] == gates
    assert all(shard.seconds <= shard_s or len(shard.gates) == 1 for shard in plan.shards)


def test_a_gate_that_takes_longer_has_a_shard_of_its_own() -> None:
    durations = Durations(SECONDS)
    (shard,) = plan_of(served("glm", gates=["stop", "load", "tools"])).shards
    document = verdict(shard)
    document["families"][0]["gates"][1]["duration_s"] = 500.0
    durations.add(document)
    plan = compose([served("glm", gates=["stop", "load", "tools"])], (), durations, 60.0)
    assert [shard.gates for shard in plan.shards] == [("stop",), ("load",), ("tools",)]
    assert [shard.seconds for shard in plan.shards] == [32, 530, 32]


def test_names_are_valid_in_kubernetes_and_unique() -> None:
    families = ["qwen3.5", "qwen3-5", "Gemma/3", "a" * 80]
    names = [shard.name for shard in plan_of(*map(served, families)).shards]
    assert names[:3] == ["qwen3-5-cpu", "qwen3-5-cpu-x2", "gemma-3-cpu"]
    assert all(re.fullmatch(r"[a-z0-9](?:[-a-z0-9]{0,54}[a-z0-9])?", name) for name in names)


def test_recorded_times_only_change_plans_with_a_time_limit() -> None:
    durations = Durations(SECONDS)
    durations.add(verdict(plan_of().shards[0]))
    plan = compose([served("qwen3.5")], (), durations)
    assert plan.digest == plan_of().digest
    assert plan.shards[0].seconds != plan_of().shards[0].seconds


def test_plan_without_a_gate_is_refused() -> None:
    with pytest.raises(UserError, match="no gate is left"):
        compose([served("glm", gates=["features"])], (), Durations(SECONDS))


def test_batches_have_as_many_shards_as_an_engine_accepts() -> None:
    plan = plan_of(*(served(f"family{number}") for number in range(7)))
    assert [len(batch) for batch in batches(plan.shards, 3)] == [3, 3, 1]
    assert batches(plan.shards, None) == [plan.shards]


def test_one_shards_reading_is_by_name_or_number() -> None:
    plan = plan_of(served("glm"), served("kimi"))
    assert plan.shard("1") == plan.shard("kimi-cpu") == plan.shards[1]
    for name in ("2", "nobody", "-1", "٣"):
        with pytest.raises(UserError, match="numbers 0 to 1, and glm-cpu, kimi-cpu"):
            plan.shard(name)


def test_plans_of_other_shards_have_other_digests() -> None:
    plan = plan_of()
    assert plan.digest != plan_of(features=["ngram"]).digest
    assert plan.digest != dataclasses.replace(plan, suite="9.9").digest
