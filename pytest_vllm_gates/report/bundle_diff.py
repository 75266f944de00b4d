"""What two bundles differ in, as a document and as a person reads it."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.bundle_diff import BundleDiff

NOT_THERE = "-"
MOST = 8
"""So many changes of one axis are listed; the document has them all."""
WIDEST = 60
CHECKSUM = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def document(diff: BundleDiff) -> dict[str, Any]:
    """Return the difference as JSON, as `bundle` in `verdict.json`."""
    return {
        "axes": list(diff.axes),
        "changed": [dataclasses.asdict(change) for change in diff.changed],
        "same": list(diff.same),
        "unknown": list(diff.unknown),
        "warning": diff.warning,
    }


def lines(diff: BundleDiff) -> Iterator[str]:
    """Yield one line a change under the lanes' names, then what is the same and what not known."""
    rows = [("", "", diff.ours, diff.theirs)]
    for axis in diff.axes:
        changes = [one for one in diff.changed if one.axis == axis]
        shown = changes[:MOST] if len(changes) > MOST + 1 else changes
        rows += [
            ("" if number else axis, one.name, _shown(one.ours), _shown(one.theirs))
            for number, one in enumerate(shown)
        ]
        if left := len(changes) - len(shown):
            rows.append(("", f"… and {left} more", "", ""))
    if diff.changed:
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        for row in rows:
            yield "  ".join(
                value.ljust(width) for value, width in zip(row, widths, strict=True)
            ).rstrip()
    else:
        known = " that can be known" if diff.unknown else ""
        yield f"nothing{known} differs between {diff.ours} and {diff.theirs}"
    if diff.same:
        yield f"same: {', '.join(diff.same)}"
    if diff.unknown:
        yield f"not known: {', '.join(diff.unknown)}"
    if diff.warning:
        yield f"warning: {diff.warning}"


def _shown(value: str | None) -> str:
    if value is None:
        return NOT_THERE
    short = CHECKSUM.sub(r"\1", value)
    return short if len(short) <= WIDEST else f"{short[: WIDEST - 1]}…"
