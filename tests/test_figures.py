"""The program that measures the figures, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

PROGRAMS = Path(__file__).parent.parent / "benchmarks"


def result(machine: str, line: str) -> dict[str, Any]:
    """Return one measured figure."""
    return {
        "figure": [line], "kept": True, "day": "2026-11-29", "machine": machine, "commit": "abc",
        "load": 0.1, "minutes": 1.0,
    }  # fmt: skip


def test_each_machine_keeps_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    import figures  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    results = [result("a slow one", "215.0 s"), result("a fast one", "80.0 s")]
    results = figures.merged(results, result("a fast one", "78.0 s"))
    page = figures.table({"overhead": results})
    _, slow, fast = page.partition("\n## Not measured yet")[0].split("\n## ")
    assert slow.startswith("a slow one\n")
    assert "215.0 s" in slow
    assert fast.startswith("a fast one\n")
    assert "78.0 s" in fast
    assert "80.0 s" not in page
