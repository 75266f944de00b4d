"""The plan's file: read as written, and refused where somebody edited it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet.made_fleets import plan_of, served
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet import shards
from pytest_vllm_gates.fleet.shards import Needs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_plan_is_read_as_written(tmp_path: Path) -> None:
    plan = plan_of(served("glm", needs=Needs(2, "GB10")), served("kimi"), features=["ngram"])
    shards.write(tmp_path / "fleet.json", plan)
    assert shards.read(tmp_path / "fleet.json") == plan


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda plan: plan["shards"].pop(), "at least 1 item"),
        (lambda plan: plan["shards"][0].update(lane="canary"), "it was edited"),
        (lambda plan: plan["shards"][0].update(needs={"gpus": "2"}), "shards.0.needs.gpus"),
        (lambda plan: plan["shards"][0].update(host="me"), "shards.0.host"),
        (lambda plan: plan.update(version=2), "version"),
        (lambda plan: plan.pop("suite"), "suite"),
    ],
    ids=["empty", "edited", "type", "unknown", "newer", "missing"],
)
def test_invalid_plan_is_refused(
    edit: Callable[[dict[str, Any]], object], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "fleet.json"
    document = json.loads(shards.text(plan_of()))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match=says) as caught:
        shards.read(path)
    assert "vllm-gates matrix --plan" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}'])
def test_plan_without_an_object_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"fleet\.json"):
        shards.read(path)
