"""The real defects of the atlas (docs/atlas.json): what this suite found in released vLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ATLAS = Path(__file__).parents[2] / "docs" / "atlas.json"


def runs() -> list[dict[str, Any]]:
    """Return the runs of the atlas."""
    found: list[dict[str, Any]] = json.loads(ATLAS.read_text(encoding="utf-8"))["runs"]
    return found


def shipped() -> str:
    """Return the release of the shipped CPU lane: the newest of the atlas."""
    newest: str = max(
        (run["release"] for run in runs()), key=lambda each: [*map(int, each.split("."))]
    )
    return newest


def defects(run: dict[str, Any]) -> int:
    """Return how many checks are red in a run; a boot that fails is one. Drift is not counted."""
    red: int = sum(
        test["outcome"] == "FAIL" and not test.get("drift", False)
        for gate in run["tests"].values()
        for test in gate.get("wrong", ())
    )
    return red + bool(run["boot"])


def known(run: dict[str, Any]) -> int:
    """Return how many checks are red by known defects, which the verdict sets aside."""
    return sum(
        test["outcome"] == "KNOWN"
        for gate in run["tests"].values()
        for test in gate.get("wrong", ())
    )


def section() -> str:
    """Return the section of the page."""
    text = "| release | family | boots | checks that fail | known defects | minutes |\n"
    text += "| --- | --- | --- | --- | --- | --- |\n"
    for run in sorted(runs(), key=lambda each: (each["release"], each["family"])):
        boots = "no" if run["boot"] else "yes"
        minutes = run["seconds"] / 60
        cells = (run["release"], run["family"], boots, defects(run), known(run), f"{minutes:.1f}")
        text += f"| {' | '.join(map(str, cells))} |\n"
    total = sum(map(defects, runs()))
    return (
        f"In {len(runs())} runs of released vLLM ([atlas](atlas.md)), {total} checks of this suite "
        f"fail and {sum(map(known, runs()))} more are red by defects that it already knows; "
        "recorded drift is not counted. Minutes are those of this suite. The contestants have not "
        f"judged these releases yet.\n\n{text}"
    )
