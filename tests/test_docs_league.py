"""The README says of the league what its page says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE = "pytest-vllm-gates"


def found() -> dict[str, tuple[int, int]]:
    """Return each contestant's faults, found and judged, of the page's first table."""
    page = (ROOT / "docs" / "league.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+)/(\d+) \|", page.split("## By class")[0], re.MULTILINE)
    return {name.strip("`"): (int(hits), int(judged)) for name, hits, judged in rows}


def test_the_readme_has_the_figures_of_the_league() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    league = found()
    hits, judged = league[SUITE]
    assert (
        f"Of {judged} faults of a real server, this suite found {hits}; golden answers found "
        f"{league['golden answers'][0]}, a smoke prompt {league['smoke prompt'][0]}, and "
        f"`/health` {league['/health'][0]} "
    ) in readme
