"""A trend compares one figure on one lane and machine only."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from runs import entry

from pytest_vllm_gates.history.types import trends


def boots(*values: float, **changes: object) -> list[object]:
    return [
        entry(at, figures={"qwen3.5": {"boot_s": value}}, **changes)
        for at, value in enumerate(values)
    ]


def test_last_value_is_compared_with_the_median_before() -> None:
    (trend,) = trends(boots(10.0, 11.0, 40.0, 12.1))  # type: ignore[arg-type]
    assert (trend.family, trend.figure, trend.lane) == ("qwen3.5", "boot_s", "cpu")
    assert trend.values == (10.0, 11.0, 40.0, 12.1)
    assert trend.change == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"lane": "cuda"},
        {"machine": "H100"},
        {"checkpoints": {"qwen3.5": "0.8B"}},
    ],
)
def test_different_machines_or_lanes_are_not_compared(changes: dict[str, object]) -> None:
    assert trends([*boots(1.0), *boots(2.0, **changes)]) == ()  # type: ignore[list-item]


def test_one_value_is_not_a_trend_and_zero_has_no_change() -> None:
    assert trends(boots(1.0)) == ()  # type: ignore[arg-type]
    (trend,) = trends(boots(0.0, 1.0))  # type: ignore[arg-type]
    assert trend.change is None


def test_trends_of_one_family() -> None:
    both = {"qwen3.5": {"boot_s": 1.0}, "glm": {"boot_s": 2.0}}
    runs = [
        entry(at, checkpoints=dict.fromkeys(both, "miniature"), figures=both) for at in range(2)
    ]
    assert [trend.family for trend in trends(runs)] == ["qwen3.5", "glm"]
    assert [trend.values for trend in trends(runs, "glm")] == [(2.0, 2.0)]


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=9))
def test_constant_figure_has_no_change(values: list[float]) -> None:
    (trend,) = trends(boots(*values))  # type: ignore[arg-type]
    assert trend.change is not None
    assert (trend.change > 0) == (values[-1] > sorted_median(values[:-1]))
    (same,) = trends(boots(*[values[0]] * len(values)))  # type: ignore[arg-type]
    assert same.change == 0


def sorted_median(values: list[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    odd = len(values) % 2
    return ordered[middle] if odd else (ordered[middle - 1] + ordered[middle]) / 2
