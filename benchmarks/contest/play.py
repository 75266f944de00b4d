"""Plays faults: runs `tests/faults` with the plugin `watch`, one server at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest.watch import NAME, PLAN

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
EVERY = "real or slow or alone"


def read(results: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; none where there is no such file."""
    if not results.is_file():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def append(results: Path, line: dict[str, Any]) -> None:
    """Add a line to the results."""
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def play(
    results: Path,
    references: Path,
    server: str,
    *,
    kinds: Sequence[str],
    per_kind: int | None,
    commit: str,
) -> int:
    """Play the faults of one server that were not played yet; return pytest's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        planned = {
            "server": server,
            "kinds": list(kinds),
            "per_kind": per_kind,
            "played": [line["id"] for line in read(results) if "id" in line],
            "results": str(results.resolve()),
            "references": str(references.resolve()),
            "looks": str(Path(folder) / "looks.jsonl"),
            "commit": commit,
        }
        plan = Path(folder) / "plan.json"
        plan.write_text(json.dumps(planned), encoding="utf-8")
        left_out = ("PYTEST_", "OPENAI_", "LEAGUE_")
        inherited = {key: one for key, one in os.environ.items() if not key.startswith(left_out)}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "tests/faults", "-m", EVERY, "-q", "--tb=short",
             "-p", "no:cacheprovider", "-p", NAME, "--color=no"],
            cwd=ROOT,
            env={**inherited, PLAN: str(plan)},
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode  # fmt: skip
