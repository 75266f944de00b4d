"""The plan against boots that others have published, and whose figures decided no constant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import public_boots as public  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

sys.path.remove(str(BENCHMARKS))
BOOTS = public.boots()


@pytest.mark.parametrize("boot", BOOTS, ids=[boot.name for boot in BOOTS])
def test_runtime_lies_in_the_interval(boot: public.Boot) -> None:
    assert boot.took is not None
    assert boot.low <= boot.took <= boot.high


def test_most_figures_are_within_the_interval() -> None:
    def near(name: str) -> float:
        figures = [each for boot in BOOTS for each in boot.figures if each.name == name]
        return float(sum(each.near for each in figures) / len(figures))

    assert near("weights") > 0.97 and near("tokens") == 1 and near("cache") > 0.9


def test_some_boots_decided_nothing() -> None:
    assert len(BOOTS) > 50
    assert sum(not boot.calibrates for boot in BOOTS) >= 9
