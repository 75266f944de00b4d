"""Figures are on the page whether their tests passed or failed, for one lane and for two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from pytest_vllm_gates.report.html import charts, gate_figures, load_figures
from pytest_vllm_gates.report.html.charts import BarRow, SpanRow, Strip, StripLine
from pytest_vllm_gates.report.html.drawing import TextLimits
from pytest_vllm_gates.report.html.numbers import numbers
from pytest_vllm_gates.report.html.panels import NONE, Side, change
from pytest_vllm_gates.report.html.sections import Lanes
from report.documents import REJECT, THEIRS, empty, load
from report.documents.figures import with_figures
from report.html.test_page import JUNK, checked

if TYPE_CHECKING:
    from pytest_vllm_gates.report.html.panels import Panel

LIMITS = TextLimits()


def passed(**more: float) -> dict[str, Any]:
    """Return a document in which everything passed."""
    document = empty("PROMOTE")
    checkpoint = {"name": "m", "source": "s", "revision": None}
    document["families"] = [
        {"name": "qwen3.5", "checkpoint": checkpoint, "boot": None, "gates": []}
    ]
    return with_figures(document, **more)


def panels(ours: dict[str, Any], theirs: dict[str, Any] | None = None) -> dict[str, Panel]:
    """Return the panels of the first family by their titles."""
    found = numbers(Lanes(ours, theirs), ours["families"][0], LIMITS)[1]
    return {panel.title: panel for panel in found}


def table(panel: Panel) -> dict[str, dict[str, str]]:
    """Return a panel's cells by row and column."""
    return {row[0]: dict(zip(panel.columns[1:], row[1:], strict=True)) for row in panel.rows}


def test_every_figure_of_a_run_that_passed_is_on_the_page() -> None:
    text = checked(passed()).text
    for words in (
        "PROMOTE", "Numbers", "TTFT, time to the first token: p50, p90 and p99",
        "ITL, time between", "TPOT, time per output token",
        "E2E, time to the last token", "goodput", "output tokens/s",
        "most in the queue", "most of the KV cache in use", "preemptions",
        "streams, over its time", "seconds since the load began", "The ladder of lengths",
        "Distance from the reference", "The boot's phases", "loading the weights",
        "The highest sustained rate", "p95 TTFT is 9 s",
    ):  # fmt: skip
        assert words in text, words


def test_latencies_have_three_percentiles() -> None:
    panel = panels(passed())["Latencies under load"]
    assert panel.columns == ("figure and load", "p50", "p90", "p99")
    rows = table(panel)
    assert list(rows) == [
        f"{name}, {phase}"
        for name in ("TTFT", "ITL", "TPOT", "E2E")
        for phase in ("streams", "arrivals")
    ]
    recorded = passed()["families"][0]["gates"][1]["tests"][0]["evidence"]["figures"]["streams"]
    assert rows["TTFT, streams"] == {
        name: charts.seconds(recorded["ttft_s"][name]) for name in ("p50", "p90", "p99")
    }


def test_judged_lane_is_first_with_its_change() -> None:
    theirs = passed(each=0.01)
    theirs["lane"]["name"] = "old"
    found = panels(passed(), theirs)
    panel = found["Latencies under load"]
    assert panel.columns[1:4] == ("p50, cpu", "p50, old", "change")
    ttft = panel.rows[0]
    assert ttft[3] == "+74.1%"
    styles = {mark.style for mark in panel.charts[0].drawing.marks if mark.kind == "dot"}
    assert styles == {"bar ours", "bar theirs"}
    says = panel.charts[0].drawing.says
    assert says.index("streams, cpu:") < says.index("streams, old:")
    served = found["Queue, KV cache and preemptions"]
    assert table(served)["streams"]["preemptions, old"] == "3"


def test_a_family_of_only_one_lane_is_shown_alone() -> None:
    theirs = load(THEIRS)
    theirs["families"] = []
    assert panels(passed(), theirs)["Latencies under load"].columns[1:] == ("p50", "p90", "p99")


def test_an_older_document_without_p90_has_a_dash() -> None:
    document = passed()
    figures = document["families"][0]["gates"][1]["tests"][0]["evidence"]["figures"]
    for phase in figures.values():
        for name in ("ttft_s", "itl_s", "tpot_s", "e2e_s"):
            del phase[name]["p90"]
    assert table(panels(document)["Latencies under load"])["TTFT, streams"]["p90"] == NONE


def test_server_figures_are_named_with_their_units() -> None:
    row = table(panels(passed())["Queue, KV cache and preemptions"])["streams"]
    assert row == {
        "most running": "4", "most in the queue": "4", "most of the KV cache in use": "25.0%",
        "preemptions": "3", "prompt tokens found in the cache": "64",
    }  # fmt: skip


def test_boot_phases_do_not_count_twice() -> None:
    """Compiling and capturing lie within the engine's start."""
    rows = table(panels(passed())["The boot's phases"])
    assert {name: row["seconds"] for name, row in rows.items()} == {
        "loading the weights": "12.5 s",
        "starting the engine: profile, cache, warm-up": "20 s",
        "of which compiling": "14 s",
        "of which capturing graphs": "5 s",
        "the rest until it was healthy": "6 s",
        "start to healthy": "38.5 s",
        "healthy to the end of the first chat": "500 ms",
        "the first chat's first token": "250 ms",
    }


def test_boot_of_a_server_that_ran_already_is_its_first_chat() -> None:
    document = passed()
    times = {"health_s": None, "first_chat_s": None, "first_token_s": 0.25}
    document["families"][0]["boot"] = {"ok": True, "failure": None, "times": times, "evidence": {}}
    panel = panels(document)["The first chat"]
    assert table(panel) == {"the first chat's first token": {"seconds": "250 ms"}}
    both = panels(passed(), document)["The boot's phases"]
    assert ("start to healthy", "38.5 s", NONE, NONE) in both.rows


def test_ladder_has_each_rung_with_its_errors() -> None:
    panel = panels(passed())["The ladder of lengths"]
    rows = table(panel)
    assert list(rows) == [
        "512 + 8, cold", "512 + 8, warm", "4,088 + 8 x 4, cold", "4,088 + 8 x 4, cold (2)",
    ]  # fmt: skip
    assert rows["4,088 + 8 x 4, cold"]["slowest answer"] == "1.5 s"
    assert rows["4,088 + 8 x 4, cold"]["preemptions"] == "1"
    assert rows["4,088 + 8 x 4, cold"]["memory after"] == "1.00 GiB"
    assert rows["4,088 + 8 x 4, cold (2)"]["errors"] == "answered 500"


def test_distances_are_drawn_as_shares_of_the_tolerance() -> None:
    panel = panels(passed(mean=0.03))["Distance from the reference"]
    assert panel.columns == (
        "test and prompt", "mean (0.02 allowed)", "99 of 100 within (0.1 allowed)",
        "largest (0.5 allowed)",
    )  # fmt: skip
    says = panel.charts[0].drawing.says
    assert says.startswith("mean, cpu: 150.0%; 99 of 100 within, cpu: 90.0%; largest, cpu: 36.0%")
    assert "Limit: the tolerance" in says


def test_a_run_without_figures_has_no_numbers() -> None:
    document = passed()
    document["families"][0] |= {"gates": [], "boot": None}
    assert panels(document) == {}
    assert "numbers" not in [attributes.get("id") for _, attributes in checked(document).tags]


def test_a_failed_runs_figures_are_there_too() -> None:
    text = checked(with_figures(load(REJECT)), with_figures(load(THEIRS), each=0.01)).text
    assert "Its numbers" in text
    assert "p50, cpu-previous" in text


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [
        (None, 1.0, NONE),
        (1.0, None, NONE),
        (0.0, 1.0, NONE),
        (1.0, 1.0, "0%"),
        (2.0, 1.0, "-50.0%"),
    ],
)
def test_change_of_an_unknown_figure_is_a_dash(
    before: float | None, now: float | None, shown: str
) -> None:
    assert change(before, now) == shown


SMALL = st.floats(0, 1e15)


@given(st.lists(st.tuples(st.text(max_size=50), SMALL), min_size=1, max_size=20), st.booleans())
def test_bars_stay_within_the_drawing(rows: list[tuple[str, float]], limited: bool) -> None:
    drawing = charts.bars(
        [BarRow(name, "x", "ours", value) for name, value in rows],
        charts.plain,
        limit=(1.0, "one") if limited else None,
    )
    assert drawing
    for mark in drawing.marks:
        assert 0 <= mark.x <= 100
        assert mark.y <= drawing.height
        if mark.kind == "rect":
            assert mark.x + mark.width <= 100


@given(st.lists(st.lists(SMALL, max_size=3).map(tuple), max_size=5))
def test_spans_of_nothing_are_not_drawn(rows: list[tuple[float, ...]]) -> None:
    drawing = charts.spans([SpanRow("a", "x", "ours", row) for row in rows], charts.seconds)
    assert (drawing is None) == (not any(rows))


@given(st.lists(st.tuples(SMALL, SMALL), max_size=50))
def test_lines_stay_within_their_strip(points: list[tuple[float, float]]) -> None:
    strip = Strip("queue", (StripLine("ours", tuple(points)),))
    drawing = charts.strips([strip], charts.seconds, "seconds")
    assert (drawing is None) == (not points)
    for mark in drawing.marks if drawing else ():
        for place in mark.text.split() if mark.kind == "path" else ():
            assert all(0 <= float(value) <= 100 for value in place.split(","))


KEYS = {
    "load": ("figures", "server", "looks", "ramp"), "long_context": ("rungs", "mean_distance_nats"),
    "numerics": ("tolerance_nats", "distance_nats"), "boot": ("phases_s",),
}  # fmt: skip


@settings(max_examples=100)
@given(JUNK, JUNK)
def test_any_record_makes_panels(outer: Any, inner: Any) -> None:
    """A document may come from another version, or from somebody's editor."""
    values = (outer, {"a": inner}, {"streams": {"ttft_s": inner}, "steps": [inner]}, [inner])
    for value in values:
        gates = [
            {"gate": gate, "tests": [{"test": "t", "evidence": dict.fromkeys(keys, value)}]}
            for gate, keys in KEYS.items()
        ]
        boot = {"times": {"health_s": inner, "first_chat_s": inner}}
        several = (Side("a", charts.OURS, {"gates": gates, "boot": boot}),) * 2
        for panel in (
            *load_figures.panels(several, LIMITS), gate_figures.boot(several),
            gate_figures.ladder(several, LIMITS), gate_figures.distances(several, LIMITS),
        ):  # fmt: skip
            if panel:
                assert {len(row) for row in panel.rows} == {len(panel.columns)}
