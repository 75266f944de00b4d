"""A bisection ends with one sentence, and begins with its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.bisection import plan, report
from pytest_vllm_gates.bisection.state import Trial
from pytest_vllm_gates.bisection.types import AxisCulprit, AxisSpan, BisectResult, TrialAnswer

VLLM = AxisCulprit("vllm", "0.30.0", "0.31.0")
SURE = "both sides were tried three times and answered alike"


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (BisectResult((VLLM,), certain=True, confidence=1.0),
         f"the culprit is vllm 0.31.0 (last good 0.30.0); {SURE}"),
        (BisectResult((VLLM, AxisCulprit("flags", "a", "b", items=("eager",))), True, 1.0),
         f"the culprit is vllm 0.31.0 (last good 0.30.0) together with flags eager; {SURE}"),
        (BisectResult((AxisCulprit("vllm", "0.28.0", "0.31.0", ("0.29.0",)),), False, 1.0, ("r",)),
         "the culprit is vllm 0.31.0 (last good 0.28.0), or one of 0.29.0; not certain "
         "(probability 99.99% by the trials): r"),
        (BisectResult((AxisCulprit("vllm", "0.29.0", "0.28.0", newer_good=True),), True, 1.0),
         f"the culprit is vllm up to 0.28.0 (good from 0.29.0 on); {SURE}"),
        (BisectResult((AxisCulprit("chat template", "a", "b"),), True, 1.0),
         f"the culprit is chat template (a -> b); {SURE}"),
        (BisectResult(reasons=("the bad lane answers GOOD, not BAD",)),
         "not found: the bad lane answers GOOD, not BAD"),
    ],
)  # fmt: skip
def test_result_is_one_sentence(result: BisectResult, sentence: str) -> None:
    assert report.sentence(result) == sentence


def test_release_notes_and_the_lane_without_it_are_named() -> None:
    trial = Trial("good", 1, TrialAnswer.GOOD, "passes", 150.0)
    lines = report.result_lines(
        BisectResult((VLLM,), True, 1.0), [trial, trial], Path("out/mixed.toml"), "qwen3.5"
    )
    assert lines[1:] == [
        "  2 trials, 5 minutes",
        "  release notes: https://github.com/vllm-project/vllm/releases/tag/v0.31.0",
        "  a lane without it, not tried yet: out/mixed.toml",
        "  try it: pytest --model qwen3.5 --lane out/mixed.toml",
    ]


def test_notes_of_a_defect_that_ended_are_those_of_the_release_that_ended_it() -> None:
    ended = BisectResult((AxisCulprit("vllm", "0.29.0", "0.27.1", ("0.28.0",), newer_good=True),))
    assert [address.rpartition("/")[2] for address in report.notes(ended)] == ["v0.28.0", "v0.29.0"]


def test_commits_are_named_few_and_counted_many() -> None:
    many = tuple(f"{number:012x}" for number in range(40))
    culprit = AxisCulprit("vllm", "0.31.0", "b" * 12, without_wheel=many)
    assert f"vllm {'b' * 12} (last good 0.31.0), or one of 40 between;" in report.sentence(
        BisectResult((culprit,), False, 1.0)
    )
    (address,) = report.notes(BisectResult((culprit,)))
    assert address.endswith(f"/compare/v0.31.0...{'b' * 12}")
    ended = AxisCulprit("vllm", "0.32.0", "a" * 12, newer_good=True)
    (address,) = report.notes(BisectResult((ended,)))
    assert address.endswith(f"/compare/{'a' * 12}...v0.32.0")


def test_plan_counts_the_boots_of_one_culprit() -> None:
    axes = [
        AxisSpan("vllm", "1", "9", tuple("123456789")),
        AxisSpan("flags", "a", "b", items=("x", "y")),
    ]
    made = plan.of(axes, noisy=False)
    assert [boots for _, boots in made.steps] == [2, 2, 3, 4]
    assert plan.of(axes, noisy=True).boots > made.boots
    text = "\n".join(report.plan_lines(axes, made, ("machine",)))
    assert "at most 11 boots for one culprit:" in text
    assert "differs, but cannot be mixed on this machine: machine" in text
