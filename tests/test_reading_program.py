"""The program that measures ways of reading: how late a chunk is, and what its last line says."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return importlib.import_module("reading")


def test_a_read_has_the_kernels_stamp_if_it_is_asked_for(reading: Any) -> None:
    stamp = (0, 0, struct.pack("qq", 7, 500_000_000))
    reads = [(8.0, [stamp], 10), (9.0, [], 5), (9.5, [], 0)]
    assert reading.arrivals(reads, stamped=True) == [(7.5, 10), (9.0, 15), (9.5, 15)]
    assert reading.arrivals(reads, stamped=False) == [(8.0, 10), (9.0, 15), (9.5, 15)]


def test_a_chunk_is_as_late_as_the_read_of_its_last_byte(reading: Any) -> None:
    times = [(1.0, 8), (2.0, 10), (4.0, 30)]
    late = reading.late_s(times, [10, 20, 30], [0.5, 1.5, 3.5])
    assert late == [1.5, 2.5, 0.5]


def test_a_median_is_taken_of_each_figure(reading: Any) -> None:
    rounds = [
        reading.Figures(*each)
        for each in ((1.0, 9.0, 5.0, 1.0), (2.0, 7.0, 6.0, 1.5), (9.0, 8.0, 1.0, 1.2))
    ]
    assert reading.middle(rounds) == reading.Figures(2.0, 8.0, 5.0, 1.2)


@pytest.mark.parametrize(
    ("us", "stamp_ms", "kept"), [(6.7, 0.1, False), (6.9, 0.1, True), (5.5, 1.2, True)]
)
def test_a_cheaper_way_counts_only_if_it_is_not_late(
    reading: Any, us: float, stamp_ms: float, kept: bool
) -> None:
    medians = {
        reading.CLIENT: reading.Figures(10.0, 0.1, 0.2, 1.0),
        reading.CLIENTS: reading.Figures(8.0, 0.1, 0.2, 1.0),
        "late": reading.Figures(5.0, 12.0, 12.0, 1.0),
        "two chunks a read": reading.Figures(3.0, 25.0, 25.0, 2.0),
        "other": reading.Figures(us, stamp_ms, 2.0, 1.0),
    }
    sentence, within = reading.summary(medians)
    assert within is kept
    assert "its whole loop 10.0 us (2.0 times the least)" in sentence


def test_a_lines_unknown_time_is_named(reading: Any) -> None:
    assert "read 1.50 ms" in reading.line("a way", reading.Figures(7.0, 0.1, 1.5, 1.0)).replace(
        "  ", " "
    )
    assert "unknown" in reading.line("a way", reading.Figures(7.0, 0.1, float("nan"), 1.0))
