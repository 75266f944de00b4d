"""The reference is made from the code, and has every option, key, command and status."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_reference_is_what_the_code_gives() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "reference.py"))["page"]()
    assert made == PAGE, "run: python docs/reference.py > docs/reference.md"


@pytest.mark.parametrize(
    "entry",
    [
        "| `--against NAME` |",
        "| [`tools`](gates/tools.md) |",
        "| INCONCLUSIVE | `Inconclusive` |",
        "| `pytest` | 6 |",
        "### vllm-gates lane new",
        "### vllm-gates shadow",
        "| `base_url` | `str` |",
        "| `planned` | `int` | required |",
        "| `promotion` |",
        "| `NotApplicable` |",
    ],
)
def test_reference_has_an_entry_of_each_kind(entry: str) -> None:
    assert entry in PAGE
