"""The page of silent changes has the table that was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- benchmarks/equivalence.py --table -->\n", "<!-- end -->"


def test_the_table_is_what_is_recorded() -> None:
    page = (ROOT / "docs" / "equivalence.md").read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0]
    printed = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "equivalence.py", "--table"],
        check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert table == printed
