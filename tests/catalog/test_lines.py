"""The line of a key is found in tables, in arrays of tables and behind dots, in one reading."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.catalog import lines

TEXT = """\
title = "x"

[engine]
power = 1
"odd.name" = 2
wheel.size = 3

[[trip]]
place = "a"

[trip.stop]
hour = 1

[[trip]]
place = "b"

[trip.stop]
hour = 2
"""


@pytest.mark.parametrize(
    ("location", "line"),
    [
        pytest.param(("title",), 1, id="top"),
        pytest.param(("engine", "power"), 4, id="table"),
        pytest.param(("engine", "odd.name"), 5, id="quoted"),
        pytest.param(("engine", "wheel", "size"), 6, id="dotted"),
        pytest.param(("engine", "wheel", "colour"), 3, id="head of the table that lacks the key"),
        pytest.param(("trip", 0, "place"), 9, id="first of an array"),
        pytest.param(("trip", 1, "place"), 15, id="second of an array"),
        pytest.param(("trip", 1, "stop", "hour"), 18, id="table inside an array"),
        pytest.param(("trip", 1, "name"), 14, id="head of the item that lacks the key"),
        pytest.param(("other",), None, id="nowhere"),
    ],
)
def test_line_of_a_key(location: tuple[str | int, ...], line: int | None) -> None:
    assert lines.line_of(TEXT, location) == line
