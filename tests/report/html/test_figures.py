"""Figures become drawings, with the same content in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.memory_plan.types import GIB
from pytest_vllm_gates.report.html import drawing
from pytest_vllm_gates.report.html.drawing import TextLimits, clean, cut, spread
from pytest_vllm_gates.report.html.memory import memory
from pytest_vllm_gates.report.html.prompts import lines_with_marks, token_diff
from pytest_vllm_gates.report.html.throughput import comparison
from pytest_vllm_gates.report.html.trends import trends

LIMITS = TextLimits()
FINITE = st.floats(-1e9, 1e9)
PLAN: dict[str, Any] = {
    "weights": {"bytes_per_device": 2 * GIB}, "overhead_bytes": GIB, "kv_memory_bytes": 4 * GIB,
    "needed_bytes": GIB, "pool": {"tokens": 4000, "concurrency": 4.0},
}  # fmt: skip
DECISION = {
    "answer": "REGRESSION",
    "changes": {
        "output_tokens_per_s": {"change": -0.04, "at_best": -0.01, "at_worst": -0.07},
        "ttft_s": {"change": 0.02, "at_best": -0.02, "at_worst": 0.06},
    },
}


def places(picture: drawing.Drawing, style: str) -> list[float]:
    return [mark.x for mark in picture.marks if mark.style == style]


def test_memory_is_stacked_on_one_scale() -> None:
    reported = {"kv_gib": 4.0, "kv_concurrency": 2.0, "kv_tokens": 2000.0, "weights_gib": 2.0}
    section = memory({"planned": PLAN, "told": reported}, at_once=3)
    assert section
    planned, real = ([(part.name, part.size / GIB) for part in parts] for _, parts in section.bars)
    assert planned == [
        ("weights", 2.0), ("runtime", 1.0), ("cache of 3 requests of full length", 3.0),
        ("rest of the cache", 1.0),
    ]  # fmt: skip
    assert real == [
        ("weights", 2.0),
        ("cache of 3 requests of full length (not enough: 6.00 GiB are needed)", 4.0),
    ]
    assert section.figures[0] == ("tokens that fit in the KV cache", "4,000", "2,000")
    bars = [mark for mark in section.drawing.marks if mark.kind == "rect"]
    assert sum(mark.width for mark in bars[:4]) == pytest.approx(98, abs=0.1)
    assert sum(mark.width for mark in bars[4:]) == pytest.approx(98 * 6 / 7, abs=0.1)
    assert "planned: weights 2.00 GiB, runtime 1.00 GiB" in section.drawing.says


def test_unreported_memory_is_not_drawn() -> None:
    section = memory({"planned": PLAN, "told": {"kv_gib": 1.0}})
    assert section
    assert [part.name for part in section.bars[1][1]] == ["KV cache"]
    assert section.notes == ("the server does not report its weights",)
    assert memory({"planned": PLAN}) is None
    assert memory({"planned": {"pool": None}, "told": {"kv_tokens": 1.0}}) is None


def test_change_is_drawn_on_its_interval_beside_zero() -> None:
    pairs = [{"slowdowns": {"output_tokens_per_s": 0.05, "ttft_s": 0.01}}]
    section = comparison({"decision": DECISION, "pairs": pairs, "against": "old"}, "new", LIMITS)
    assert section and section.drawing
    assert [change.says for change in section.changes] == [
        "output tokens a second: -4.0% (surely between -7.0% and -1.0%)",
        "time to the first token: +2.0% (surely between -2.0% and +6.0%)",
    ]
    slower, later = places(section.drawing, "estimate")
    (zero,) = places(section.drawing, "zero")
    assert slower < zero < later
    # A slowdown is the logarithm of how many times longer it takes.
    assert list(section.changes[0].points) == [pytest.approx(-0.0488, abs=1e-4)]


def test_blocks_of_both_sides_are_summarized() -> None:
    blocks = {"ours": {"itl_s": [0.01, 0.03, 0.02, 0.02, 0.02]}, "theirs": {"itl_s": [0.01]}}
    section = comparison({"against": "old", "blocks": blocks}, "new", LIMITS)
    assert section and section.drawing is None
    (distribution,) = section.distributions
    assert distribution.sides == (
        ("new", 5, "10 ms", "20 ms", "30 ms"), ("old", 1, "10 ms", "10 ms", "10 ms"),
    )  # fmt: skip
    assert len(places(distribution.drawing, "block")) == 6
    assert len(places(distribution.drawing, "median")) == 1  # one block has no quartiles


def test_no_measurement_has_no_section() -> None:
    assert comparison({"decision": {"answer": "INCONCLUSIVE", "changes": {}}}, "x", LIMITS) is None


def test_trend_names_its_first_and_last_value() -> None:
    runs = [
        {"created": f"day {at}", "lane": "cpu", "promotion": "HOLD", "versions": {"vllm": "1"},
         "figures": {"tokens/s": value}}
        for at, value in enumerate((100.0, 50.0, 75.0))
    ]  # fmt: skip
    section = trends({"history": runs}, LIMITS)
    assert section
    (trend,) = section.trends
    assert trend.drawing.says == "tokens/s: 100 at first, 75 now, between 50 and 100 over 3 runs"
    assert [row[0] for row in section.rows] == ["day 2", "day 1", "day 0"]
    ys = [mark.y for mark in trend.drawing.marks if mark.kind == "dot"]
    assert ys[0] < ys[2] < ys[1], "more is higher up"
    assert trends({"history": runs[:1]}, LIMITS) is None


def test_lanes_are_not_joined_by_a_line() -> None:
    runs = [{"lane": lane, "figures": {"f": 1.0 * at}} for at, lane in enumerate("abab")]
    section = trends({"history": runs}, LIMITS)
    assert section
    lines = [mark for mark in section.trends[0].drawing.marks if mark.kind == "line"]
    assert [mark.style for mark in lines] == ["axis", "trend-other", "trend"]


def test_prompt_difference_is_read_from_evidence() -> None:
    evidence = {
        "of": ["recorded", "now"],
        "tokens": [3, 4],
        "runs": [
            {"kind": "skipped", "count": 2},
            {"kind": "removed", "token_ids": [5], "texts": ["a"]},
            {"kind": "added", "token_ids": "dropped", "texts": ["b", "c"]},
        ],
    }
    diff = token_diff({"prompt": evidence}, LIMITS)
    assert diff
    assert (diff.expected, diff.found, diff.counts) == ("recorded", "now", (3, 4))
    assert [(run.kind, run.tokens, run.skipped) for run in diff.runs] == [
        ("skipped", (), 2), ("removed", (("a", "5"),), 0),
        ("added", (("b", ""), ("c", "")), 0),
    ]  # fmt: skip
    assert token_diff({"prompt": {"runs": []}}, LIMITS) is None


def test_only_the_lines_of_a_difference_are_marked() -> None:
    reason = "- no list\n(- recorded, + now)\n- old\n+ new\n same"
    assert [kind for kind, _ in lines_with_marks(reason)] == ["", "", "removed", "added", ""]


@given(st.lists(FINITE, min_size=1), st.booleans())
def test_every_value_has_a_place_on_the_scale(values: list[float], zero: bool) -> None:
    across = drawing.scale(values, zero=zero)
    assert all(1 <= across(value) <= 99 for value in values)
    ticks = list(across.ticks())
    assert len(ticks) <= 12
    assert all(across.low <= tick <= across.high + 1e-6 * abs(across.high) for tick in ticks)


@given(st.text(), st.integers(2, 40))
def test_cut_text_names_how_much_is_missing(text: str, most: int) -> None:
    shortened = cut(text, most)
    if len(text) <= most:
        assert shortened == text
    else:
        assert shortened.startswith(text[: most - most // 4])
        assert f"[{len(text) - most:,} characters left out" in shortened


@given(st.text())
def test_cleaned_text_is_writable_and_stays_clean(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned


@given(st.lists(st.integers(), max_size=50), st.integers(2, 10))
def test_spread_keeps_both_ends(values: list[int], most: int) -> None:
    kept = spread(values, most)
    assert len(kept) <= most
    assert kept == values or (kept[0], kept[-1]) == (values[0], values[-1])


def test_halving_limits_ends() -> None:
    limits = LIMITS
    for _ in range(20):
        limits = limits.halved()
    assert limits.least and limits.items == 2
