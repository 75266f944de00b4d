"""The logs of real starts separate their phases."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from pytest_vllm_gates.server import startup
from pytest_vllm_gates.warmup import marks

LOGS = Path(__file__).parents[1] / "signatures" / "healthy"
SETTINGS = marks.load()
STAMP = re.compile(r"\d\d-\d\d (\d\d:\d\d:\d\d)")


def phases_of(name: str, *, health_s: float, total_s: float) -> dict[str, int]:
    """Return the phases of a recorded log whose lines came at the seconds that they name."""
    text = (LOGS / name).read_text(encoding="utf-8")
    noted = marks.LogMarks(SETTINGS.marks)
    begun = None
    for line in text.splitlines(keepends=True):
        if match := STAMP.search(line):
            at = datetime.datetime.strptime(match[1], "%H:%M:%S")  # noqa: DTZ007 - of one day
            begun = begun or at
            noted.note(line, (at - begun).total_seconds())
    logged_s = startup.read(text).phases_s
    found = marks.phases(noted.at_s, logged_s, SETTINGS.marks, health_s, total_s)
    assert sum(found.values()) == pytest.approx(total_s)
    return {phase: round(seconds) for phase, seconds in found.items()}


def test_a_start_on_an_h100_has_each_phase() -> None:
    assert phases_of("gpu-h100-qwen3.5-0.32.log", health_s=180.0, total_s=181.0) == {
        "imports": 28, "weights": 3, "compiling": 16, "graphs": 3, "engine": 126, "serving": 4,
        "first answer": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["cpu-qwen3.5-0.30.log", "cpu-qwen3.5-0.32.log"])
def test_a_start_on_a_cpu_compiles_nothing(name: str) -> None:
    found = phases_of(name, health_s=45.0, total_s=46.0)
    assert [*found] == ["imports", "weights", "engine", "serving", "first answer"]
    assert found["imports"] > 20
    assert found["weights"] <= 1


def test_the_last_of_several_ranks_ends_a_phase() -> None:
    noted = marks.LogMarks(SETTINGS.marks)
    for at_s, line in (
        (1.0, "Starting to load model a...\n"), (2.0, "Starting to load model a...\n"),
        (3.0, "Loading weights took 1.0 seconds\n"), (4.0, "Starting to load model a...\n"),
        (5.0, "Model loading took 1.0 GiB memory and 3.0 seconds\n"),
    ):  # fmt: skip
        noted.note(line, at_s)
    assert noted.at_s == {"imports": 2.0, "weights": 5.0}


def test_a_line_that_comes_in_two_parts_is_a_mark() -> None:
    noted = marks.LogMarks(SETTINGS.marks)
    noted.note("INFO Starting to lo", 1.0)
    assert noted.at_s == {}
    noted.note("ad model a...\n", 2.0)
    assert noted.at_s == {"imports": 2.0}


def test_without_its_line_a_phase_is_part_of_the_next() -> None:
    assert marks.phases({}, {"compiling": 3.0}, SETTINGS.marks, 10.0, 12.0) == {
        "compiling": 3.0, "serving": 7.0, "first answer": 2.0
    }  # fmt: skip
    found = marks.phases({"weights": 4.0}, {"graphs": 99.0}, SETTINGS.marks, 10.0, 12.0)
    assert found == {"weights": 4.0, "graphs": 6.0, "serving": 0.0, "first answer": 2.0}
