"""Pieces of a stream become a time line, from evidence or from an incident."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.report.html import streams
from pytest_vllm_gates.report.html.drawing import TextLimits
from pytest_vllm_gates.report.html.sections import Lanes

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = TextLimits()
WHERE = ("qwen3.5", "streaming", "test_x")


def line(**values: Any) -> str:
    return json.dumps(values) + "\n"


def bundle(folder: Path, *lines: str, name: str = "1") -> str:
    """Write an incident's bundle into a report's folder; return its path from there."""
    path = folder / "incidents" / "one" / "responses" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return "incidents/one"


def test_stream_is_described_and_its_gap_is_drawn() -> None:
    pieces = [(0.1 * at, "word") for at in range(1, 11)] + [(3.0, "late")]
    timeline = streams.timeline([("ours", pieces)], LIMITS)
    assert timeline
    (row,) = timeline.rows
    assert row.says == (
        "44 characters in 11 pieces; the first after 100 ms, the last after 3.00 s; the longest "
        "gap is 2.00 s, 100 ms are usual"
    )
    assert row.gap == (1.0, 3.0)
    assert timeline.drawing.says == f"ours: {row.says}"
    assert [mark.text for mark in timeline.drawing.marks if mark.style == "gap-label"] == [
        "nothing for 2.00 s"
    ]


def test_both_streams_share_one_scale() -> None:
    timeline = streams.timeline([("ours", [(1.0, "a")]), ("theirs", [(4.0, 7)])], LIMITS)
    assert timeline
    ours, theirs = (mark for mark in timeline.drawing.marks if mark.style == "piece")
    assert ours.x == pytest.approx(1 + 98 / 4, abs=0.5)
    assert theirs.x == pytest.approx(99, abs=0.5)
    assert theirs.y > ours.y


def test_an_even_stream_has_no_gap() -> None:
    timeline = streams.timeline([("x", [(at / 10, "w") for at in range(50)])], LIMITS)
    assert timeline and timeline.rows[0].gap is None


def test_no_stream_has_no_timeline() -> None:
    assert streams.timeline([], LIMITS) is None
    assert streams.timeline([("x", [])], LIMITS) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.text(max_size=3) | st.integers(0, 10**9))))
def test_any_pieces_fit_the_drawing(pieces: list[streams.Piece]) -> None:
    timeline = streams.timeline([("x", pieces)], LIMITS)
    assert (timeline is None) == (not pieces)
    if timeline:
        assert all(0 <= mark.x <= 100 for mark in timeline.drawing.marks)
        assert len(timeline.drawing.marks) < 2 * LIMITS.marks + 20
        assert len(timeline.rows[0].pieces) <= 40


def test_recorded_streams_begin_with_the_judged_one() -> None:
    evidence = {
        "streams": [
            {"what": "first", "times_ms": [10.0, 20.0], "sizes": [3, 4]},
            {"what": "last", "pieces": [[0.5, "a"], [1, "b"], ["x", "c"], [-1, "d"], 7]},
        ]
    }
    assert streams.recorded(evidence) == [
        ("last", [(0.5, "a"), (1.0, "b")]), ("first", [(0.01, 3), (0.02, 4)]),
    ]  # fmt: skip


def test_an_incidents_responses_are_read(tmp_path: Path) -> None:
    raw = base64.b64encode(b"\xff\xfe\xfd").decode()
    path = bundle(
        tmp_path,
        line(status=200, headers={}),
        line(at_s=0.5, text="data: a"), line(at_s=0.75, base64=raw), '{"at_s": 1.0, "te',
    )  # fmt: skip
    bundle(tmp_path, line(status=200, headers={}), name="10")
    bundle(tmp_path, line(at_s=1, text="b"), name="2")
    assert streams.of_incident(tmp_path / path) == [
        ("response 1", [(0.5, "data: a"), (0.75, 3)]), ("response 2", [(1.0, "b")]),
        ("response 10", []),
    ]  # fmt: skip
    assert streams.of_incident(tmp_path / "nowhere") == []


def test_both_lanes_incidents_are_found(tmp_path: Path) -> None:
    path = bundle(tmp_path, line(at_s=1, text="ours"))
    bundle(tmp_path / "against", line(at_s=2, text="theirs"))
    incidents = [dict(zip(("family", "gate", "test"), WHERE, strict=True), path=path)]
    ours = {"against": {"document": "against/verdict.json"}, "incidents": incidents}
    lanes = Lanes(ours, {"incidents": incidents}, tmp_path)
    assert lanes.incidents(WHERE) == [path]
    assert lanes.recorded([path]) == [("response 1", [(1.0, "ours")])]
    assert lanes.recorded_by_them(WHERE) == [("response 1", [(2.0, "theirs")])]
    assert lanes.incidents(("glm", *WHERE[1:])) == []
    assert Lanes(ours).recorded([path]) == []
