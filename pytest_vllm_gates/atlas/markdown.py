"""The atlas as a page, and as a document."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.atlas import spans
from pytest_vllm_gates.atlas.findings import shape
from pytest_vllm_gates.atlas.types import AtlasKind, AtlasRow, AtlasState, in_order
from pytest_vllm_gates.catalog import releases as catalog_releases
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.atlas.types import AtlasRun

ISSUE = re.compile(r"(?<![\w./-])([\w.-]+/[\w.-]+)#(\d+)")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#])")
CELL, REQUEST = 260, 200
"""Characters of a cell, and of a request in it."""
TITLES = {
    AtlasKind.WRONG: "In every release that was run",
    AtlasKind.BOOT: "Families that do not boot",
    AtlasKind.DRIFT: "Contracts that drift",
}
WORDS = {
    AtlasKind.BOOT: "One row for each family, however many checks could not run.",
    AtlasKind.DRIFT: "A route, a metric, a field or a message differs from the records of the "
    "shipped lanes; in an older release, a missing part may not exist yet. A client or a "
    "dashboard may rely on it; no answer is wrong because of it.",
}
NAMES = ("gate, check", "what", "families", "releases", "shown by", "reported")


def page(runs: Sequence[AtlasRun], rows: Sequence[AtlasRow]) -> str:
    """Return the atlas as Markdown."""
    releases = in_order([run.release for run in runs])
    moving = [row for row in rows if row.changes and row.kind is not AtlasKind.DRIFT]
    staying = [row for row in rows if row not in moving]
    lines = [
        "# Atlas of releases",
        "",
        f"The findings of the gates in vLLM {releases[0]} to {releases[-1]}: the checks that fail, "
        "since when, and until when."
        if releases
        else "No run is kept yet.",
        "",
        "Written by `vllm-gates atlas --table` from the runs below. *fails* counts failed checks "
        "that are not listed, *known* counts those that the [known defects](verdict.md) cover. A "
        "check that did not run, or could not judge, is *not seen*, and never right. The lanes "
        "have the repairs of their [overlay](lanes.md); defects that these repair are not shown.",
        "",
        "```console",
        "vllm-gates atlas --releases 0.27.1..0.32.0 --model qwen3.5,glm",
        "vllm-gates atlas --add 0.33.0",
        "vllm-gates atlas --table --json",
        "```",
        "",
        *_runs(runs, releases),
    ]
    if moving:
        lines += [
            "## Begins or ends between two releases", "",
            f"{len(grouped(moving))} faults that one release has and another does not have.", "",
            *_table(moving),
        ]  # fmt: skip
    for kind, title in TITLES.items():
        if found := [row for row in staying if row.kind is kind]:
            lines += [f"## {title}", ""]
            lines += [WORDS[kind], ""] if kind in WORDS else []
            lines += _table(found)
    return "\n".join(lines).rstrip() + "\n"


def _runs(runs: Sequence[AtlasRun], releases: Sequence[str]) -> list[str]:
    families = list(dict.fromkeys(run.family for run in runs))
    heads = [f"[{each}]({catalog_releases.notes(each)})" for each in releases]
    rows = [[family, *(_run(runs, release, family) for release in releases)] for family in families]
    dates = sorted({run.created[:10] for run in runs})
    lines = ["## Runs", "", *_grid(["", *heads], rows), ""]
    if dates:
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines += [f"Run on {span}; checks by outcome.", ""]
    return lines


def _run(runs: Sequence[AtlasRun], release: str, family: str) -> str:
    found = [run for run in runs if (run.release, run.family) == (release, family)]
    if not found:
        return "not run"
    run = max(found, key=lambda each: each.created)
    if run.boot:
        return "does not boot"
    counts = Counter(test.outcome for test in run.tests)
    unseen = sum(counts[each] for each in (Outcome.BLOCKED, Outcome.MISSING, Outcome.INCONCLUSIVE))
    parts = [
        f"{counts[Outcome.PASS]} right",
        f"{counts[Outcome.KNOWN]} known",
        f"{counts[Outcome.FAIL]} fails",
        *([f"{unseen} not seen"] if unseen else []),
    ]
    return ", ".join(parts)


def _table(rows: Iterable[AtlasRow]) -> list[str]:
    return [*_grid(NAMES, [_cells(group) for group in grouped(rows)]), ""]


def grouped(rows: Iterable[AtlasRow]) -> list[list[AtlasRow]]:
    """Return the rows by fault: several checks and families may show the same fault."""
    groups: dict[tuple[object, ...], list[AtlasRow]] = {}
    for row in sorted(rows, key=lambda row: (row.gate, row.test, row.what)):
        check = None if row.listed else (row.gate, row.test)
        key = (check, row.what if row.listed else shape(row.what), row.reference)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _cells(rows: Sequence[AtlasRow]) -> list[str]:
    row = next((each for each in rows if each.request), rows[0])
    checks = dict.fromkeys(f"{each.gate}, `{each.test}`" for each in rows)
    families: dict[str, dict[str, None]] = {}
    for each in rows:
        names = families.setdefault(spans.words(each.states), {})
        names.update(dict.fromkeys(each.families))
    every = list(dict.fromkeys(name for names in families.values() for name in names))
    told = [
        text if len(names) == len(every) else f"{', '.join(names)}: {text}"
        for text, names in families.items()
    ]
    return [
        "; ".join(checks),
        escaped(_cut(row.what, CELL)),
        ", ".join(every),
        "<br>".join(told),
        _shown(row),
        linked(_cut(row.reference, CELL)) if ISSUE.search(row.reference) else "",
    ]


def _shown(row: AtlasRow) -> str:
    """Return the request that shows it: as sent, as the known defect describes it, or the test."""
    if row.kind is AtlasKind.BOOT:
        return _code(f"pytest --model {row.families[0]} -m boot")
    parts = [escaped(_cut(row.case, CELL))] if row.case else []
    if row.request:
        parts.append(_code(_cut(row.request, REQUEST)))
    elif not ISSUE.search(row.reference) and row.reference:
        parts.append(escaped(_cut(row.reference, CELL)))
    if not parts and not row.reference:
        return _code(f"pytest --model {row.families[0]} -m {row.gate} -k {row.test}")
    return ": ".join(parts)


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(heads)} |",
        f"|{' --- |' * len(heads)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def escaped(text: str) -> str:
    """Return a text without special characters of Markdown."""
    return SPECIAL.sub(r"\\\1", text)


def linked(text: str) -> str:
    """Return a text with its issues as links."""
    parts, end = [], 0
    for match in ISSUE.finditer(text):
        repository, number = match.groups()
        address = f"https://github.com/{repository}/issues/{number}"
        parts += [escaped(text[end : match.start()]),
                  f"[{repository.partition('/')[2]}#{number}]({address})"]  # fmt: skip
        end = match.end()
    return "".join(parts) + escaped(text[end:])


def _code(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def document(runs: Sequence[AtlasRun], rows: Sequence[AtlasRow]) -> dict[str, Any]:
    """Return the atlas as a document."""
    return {
        "releases": in_order([run.release for run in runs]),
        "families": list(dict.fromkeys(run.family for run in runs)),
        "rows": [
            {
                "kind": str(row.kind),
                "gate": row.gate,
                "check": row.test,
                "families": list(row.families),
                "what": row.what,
                "known": row.listed,
                "says": spans.words(row.states),
                "states": {release: str(state) for release, state in row.states},
                "changes": [list(pair) for pair in row.changes],
                "case": row.case,
                "request": row.request,
                "reference": row.reference,
            }
            for row in rows
        ],
    }


def lines(rows: Sequence[AtlasRow]) -> list[str]:
    """Return one line for each row, for a terminal."""
    return [
        f"{', '.join(row.families)}  {row.gate}  {row.test}: {_cut(row.what, 120)}: "
        f"{spans.words(row.states)}"
        for row in rows
        if row.states and any(state is AtlasState.WRONG for _, state in row.states)
    ]
