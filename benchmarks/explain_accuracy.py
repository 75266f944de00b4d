"""Measures how often a log's failure is named rightly, and how often wrongly but with certainty.

The logs are in `tests/signatures`: `expected.toml` has one or more for each signature, and
`kinds.toml` the kinds of misleading logs: warnings, loops, logs cut short, quotations.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.server import log

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = Path(__file__).parent.parent / "tests" / "signatures"
MOST_FALSE_CERTAINTY = 0.01
"""The largest share of answers that are wrong and certain."""


@dataclass(frozen=True)
class Judged:
    """One log: its kind, the right answer, and the given answer."""

    name: str
    kind: str
    wanted: str
    answered: str
    certain: bool

    @property
    def right(self) -> bool:
        """Whether the answer is the wanted one."""
        return self.answered == self.wanted


def judged() -> Iterator[Judged]:
    """Yield each log of the corpus, explained."""
    classes = signature.load_all()
    warnings = {
        entry.id for each in classes for entry in each.signatures if entry.kind == "warning"
    }
    for name, wanted in _table("expected.toml").items():
        kind = "one log of each signature"
        right = "" if wanted["id"] in warnings else wanted["id"]
        yield _judge(classes, CORPUS / "logs" / f"{name}.log", kind, right, wanted)
    for name, wanted in _table("kinds.toml").items():
        path = CORPUS / "logs" / "kinds" / f"{name}.log"
        yield _judge(classes, path, wanted["kind"], wanted["id"], wanted)
    for path in sorted((CORPUS / "healthy").glob("*.log")):
        yield _judge(classes, path, "a healthy server", "", {})


def _table(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((CORPUS / name).read_text(encoding="utf-8"))


def _judge(
    classes: tuple[signature.SignatureClass, ...],
    path: Path,
    kind: str,
    right: str,
    wanted: dict[str, Any],
) -> Judged:
    parts = explain.explain_parts(log.blocks(path), classes, wanted.get("exit_status"))
    named = [each for each in parts.values() if each.id]
    first = named[0] if named else next(iter(parts.values()))
    certain = first.answer is not None and first.answer.confidence == "certain"
    return Judged(path.stem, kind, right, first.id or "", certain)


def report() -> tuple[list[str], bool]:
    """Return the lines of the table, and whether false certainty exceeds its limit."""
    by_kind: dict[str, list[Judged]] = defaultdict(list)
    for each in judged():
        by_kind[each.kind].append(each)
    lines, total = [], Counter[str]()
    for kind, logs in by_kind.items():
        right = sum(each.right for each in logs)
        false = [each for each in logs if not each.right and each.certain]
        total.update(logs=len(logs), right=right, false=len(false))
        lines.append(f"{kind:42} {right:4} of {len(logs):4}  wrong and certain: {len(false)}")
        lines += [
            f"    {each.name}: {each.answered or 'nothing'}, not {each.wanted or 'nothing'}"
            for each in logs
            if not each.right
        ]
    share = total["false"] / total["logs"]
    lines.append(
        f"{'all':42} {total['right']:4} of {total['logs']:4}  wrong and certain: {total['false']} "
        f"({share:.1%}, at most {MOST_FALSE_CERTAINTY:.0%})"
    )
    return lines, share > MOST_FALSE_CERTAINTY
