"""`--model all` names the families that a lane can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.lane import load
from pytest_vllm_gates.lanes.families import every_family
from pytest_vllm_gates.options import read
from pytest_vllm_gates.session import resolve

if TYPE_CHECKING:
    from pathlib import Path

OWN = """
title = "Own"
line = "own"
architectures = ["A"]
model_types = ["a"]
prompt = { user = "U", assistant = "A", stop_tokens = ["S"] }
context = { native = 8, planned = 4 }
checkpoints = [{ name = "one", hub = "org/one" }]
"""


@pytest.mark.parametrize(("lane", "left_out"), [("cpu", {"gpt-oss"}), ("cuda", set())])
def test_a_lane_of_miniatures_leaves_out_families_without_one(
    tmp_path: Path, lane: str, left_out: set[str]
) -> None:
    every = set(families.files(tmp_path))
    assert every - set(every_family(tmp_path, load(lane, tmp_path))) == left_out


def test_a_family_of_the_project_is_served_with_its_own_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "own.toml").write_text(OWN)
    assert "own" in every_family(tmp_path, load("cpu", tmp_path))


def test_a_named_checkpoint_is_served_for_every_family(tmp_path: Path) -> None:
    assert "gpt-oss" in every_family(tmp_path, load("cpu", tmp_path), "./weights")


@pytest.mark.parametrize(
    ("lane", "why"), [("cpu-previous", "vLLM 0.30.0: it computes NaN"), ("cpu", "")]
)
def test_a_family_that_a_release_does_not_serve_is_reported(
    tmp_path: Path, lane: str, why: str
) -> None:
    told = every_family(tmp_path, load(lane, tmp_path))["minimax"]
    assert told.startswith(why) and bool(told) == bool(why)


@pytest.mark.parametrize(("model", "judged"), [("all", False), ("minimax", True)])
def test_all_leaves_out_an_unserved_family_and_its_name_does_not(
    pytester: pytest.Pytester, model: str, judged: bool
) -> None:
    parsed = read.parse(
        pytester.parseconfigure("--model", f"{model},glm", "--lane", "cpu-previous")
    )
    assert parsed
    run = resolve.resolve(parsed)
    names = [subject.family.name for subject in run.subjects]
    assert names.count("glm") == 1
    assert ("minimax" in names) == judged
    (note,) = run.notes
    begin = "minimax is known to fail" if judged else "--model all leaves out minimax"
    assert note.startswith(f"{begin}: vLLM 0.30.0: it computes NaN")
