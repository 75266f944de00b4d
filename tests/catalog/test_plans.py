"""The plan of the throughput gate: the shipped one, and changes by families and lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.plans import planned_throughput
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def test_lane_overrides_single_keys() -> None:
    plan = planned_throughput(
        {"requests": 8, "against": {"groups": 9}}, {"against": {"margin": 0.2}}
    )
    assert (plan.requests, plan.against.groups, plan.against.margin) == (8, 9, 0.2)
    assert plan.work == {
        "concurrency": 16, "requests": 8, "prompt_tokens": 512, "output_tokens": 128,
    }  # fmt: skip


@pytest.mark.parametrize(("most_pairs", "pairs"), [(16, (3, 16)), (3, (3, 3)), (2, (2, 2))])
def test_a_run_may_take_more_pairs_or_fewer(most_pairs: int, pairs: tuple[int, int]) -> None:
    plan = planned_throughput({"against": {"pairs": [3, 8], "groups": 9}}, {})
    throughput_plan = plan.of_pairs(most_pairs)
    assert throughput_plan.against.pairs == pairs
    assert (throughput_plan.against.groups, throughput_plan.work) == (9, plan.work)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requests": 0}, "throughput.requests"),
        ({"output_tokens": 1}, "throughput.output_tokens"),
        ({"against": {"pairs": [3, 2]}}, r"pairs is \[least, most\]"),
        ({"baseline": {"margin": 1.0}}, "throughput.baseline.margin"),
        ({"odds": {"alhpa": 0.1}}, "throughput.odds.alhpa"),
    ],
)
def test_invalid_plan_is_refused_with_the_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planned_throughput(change)


def test_invalid_throughput_of_a_lane_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "lanes").mkdir()
    file = tmp_path / "lanes" / "mine.toml"
    file.write_text('title = "x"\ncommand = ["x"]\n[throughput]\nrequests = 0\n', encoding="utf-8")
    with pytest.raises(UserError, match=rf"{file}.*throughput\.requests"):
        lanes.load("mine", tmp_path)


def test_single_number_for_all_figures_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sd: expected a key for each figure \(output_tokens"):
        planned_throughput({"against": {"pair_sd": 0.02}})
