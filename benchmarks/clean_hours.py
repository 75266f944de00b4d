"""Hours of endurance on healthy servers: each run is a line, and the table of all is the figure.

    pytest --model qwen3.5 -m endurance --endurance 60m --gates-report DIR
    python benchmarks/clean_hours.py --add DIR
    python benchmarks/clean_hours.py

`--add` reads the verdict of such a run and appends a line to RECORDED. Without arguments it prints
the table of all lines and exits 1 if a run had a finding, or if nothing is recorded. The slope of
memory is Sen's with its 95 % interval, as the gate computes it, over blocks of equally many
requests. The report has no times of blocks, so each block counts as equally long.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from figures import commit  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.load.drift import WARM_UP, drift

RECORDED = Path(__file__).parent / "recorded" / "clean_hours.jsonl"
GATE = "endurance"
MIB = 2**20
HEAD = (
    "family",
    "lane",
    "day",
    "commit",
    "minutes",
    "requests",
    "canaries",
    "memory MiB/h",
    "findings",
    "undecided",
)


def memory_slope(blocks: list[int | None], took_s: float) -> list[float] | None:
    """Return MiB an hour: estimate, low and high; None where too few blocks show memory."""
    known = [(number, memory) for number, memory in enumerate(blocks) if memory is not None]
    settled = known[round(WARM_UP * len(known)) :]
    block_h = took_s / 3600 / max(1, len(blocks))
    times = [number * block_h for number, _ in settled]
    found = drift(times, [memory / MIB for _, memory in settled])
    if found is None:
        return None
    hours = times[-1] - times[0]
    return [round(value / hours, 2) for value in (found.estimate, found.low, found.high)]


def read(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each family of a verdict that has the evidence of an endurance run."""
    machine = verdict["machine"]
    lines = []
    for family in verdict["families"]:
        tests = [test for gate in family["gates"] if gate["gate"] == GATE for test in gate["tests"]]
        evidence = [test["evidence"][GATE] for test in tests if GATE in (test["evidence"] or {})]
        if not evidence:
            continue
        (endured,) = evidence
        lines.append(
            {
                "family": family["name"],
                "lane": verdict["lane"]["name"],
                "vllm": verdict["lane"]["versions"].get("vllm", ""),
                "at": verdict["created"],
                "commit": commit(),
                "machine": f"{machine['cpu']}, {machine['cores']} cores",
                "requests": endured["requests"],
                "canaries": endured["canaries"],
                "minutes": round(endured["took_s"] / 60, 1),
                "ended_early": endured["ended_early"],
                "memory_mib_per_h": memory_slope(endured["memory_bytes"], endured["took_s"]),
                "findings": sum(test["outcome"] == "FAIL" for test in tests),
                "undecided": sum(test["outcome"] == "INCONCLUSIVE" for test in tests),
            }
        )
    return lines


def add(folder: Path) -> list[dict[str, Any]]:
    """Append the lines of a report; raises SystemExit where it has no endurance run."""
    file = folder / "verdict.json"
    if not file.is_file():
        raise SystemExit(f"{file}: no such file; DIR is what --gates-report named")
    lines = read(json.loads(file.read_text(encoding="utf-8")))
    if not lines:
        raise SystemExit(f"{file}: no endurance run in it; run pytest -m endurance --endurance 60m")
    RECORDED.parent.mkdir(exist_ok=True)
    with RECORDED.open("a", encoding="utf-8") as recorded:
        recorded.writelines(json.dumps(line) + "\n" for line in lines)
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Return the lines in columns, and their sum."""
    rows = [HEAD, *(_row(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    text = "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    hours = sum(line["minutes"] for line in lines) / 60
    findings = sum(line["findings"] for line in lines)
    requests = sum(line["requests"] for line in lines)
    total = f"{hours:.1f} hours, {requests:,} requests, {findings} findings in {len(lines)} runs"
    return f"{text}\n{total}"


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    slope = line["memory_mib_per_h"]
    memory = f"{slope[0]:+.1f} [{slope[1]:+.1f}, {slope[2]:+.1f}]" if slope else "not seen"
    numbers = (line["minutes"], line["requests"], line["canaries"])
    return (
        line["family"], line["lane"], line["at"][:10], line["commit"], *map(str, numbers), memory,
        str(line["findings"]), str(line["undecided"]),
    )  # fmt: skip


def main() -> int:
    """Add a run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--add", type=Path, metavar="DIR", help="the report of a run")
    options = parser.parse_args()
    if options.add:
        print(table(add(options.add)))
        return 0
    text = RECORDED.read_text(encoding="utf-8") if RECORDED.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    if not lines:
        print("0 hours: nothing is recorded; add the report of a run with --add DIR")
        return 1
    print(table(lines))
    return 1 if any(line["findings"] for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
