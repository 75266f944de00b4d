"""The difference between two prompts, token by token."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html.drawing import first, listing, mapping

if TYPE_CHECKING:
    from pytest_vllm_gates.report.html.drawing import TextLimits

KEY = "prompt"
SAME, REMOVED, ADDED, SKIPPED = "same", "removed", "added", "skipped"
DIFF_MARK = "(- recorded, + now)"


@dataclass(frozen=True)
class TokenRun:
    """Consecutive tokens that both prompts have, or only one of them."""

    kind: str
    tokens: tuple[tuple[str, str], ...] = ()
    """Text and id of each token."""
    skipped: int = 0
    """Tokens in common that are not shown."""


@dataclass(frozen=True)
class TokenDiff:
    """The tokens around every difference."""

    expected: str
    """The source of the removed tokens."""
    found: str
    counts: tuple[int, int]
    runs: tuple[TokenRun, ...]
    left_out: int


def token_diff(evidence: dict[str, Any], limits: TextLimits) -> TokenDiff | None:
    """Return the difference that a check of a prompt recorded, or None."""
    diff = mapping(evidence.get(KEY))
    if not diff.get("runs"):
        return None
    runs, left_out = first(listing(diff["runs"]), limits.items)
    names = [str(name) for name in listing(diff.get("of"))][:2]
    counts = [count for count in listing(diff.get("tokens")) if isinstance(count, int)][:2]
    return TokenDiff(
        expected=names[0] if names else "expected",
        found=names[-1] if names else "found",
        counts=(counts[0], counts[-1]) if counts else (0, 0),
        runs=tuple(_run(mapping(run), limits) for run in runs),
        left_out=left_out,
    )


def lines_with_marks(reason: str) -> list[tuple[str, str]]:
    """Return the lines of a reason, each with its kind: `added` or `removed` in a golden's diff."""
    marked = False
    lines = []
    for line in reason.split("\n"):
        kind = {"- ": REMOVED, "+ ": ADDED}.get(line[:2], "") if marked else ""
        lines.append((kind, line))
        marked = marked or line.strip() == DIFF_MARK
    return lines


def _run(run: dict[str, Any], limits: TextLimits) -> TokenRun:
    kind = run.get("kind")
    if kind == SKIPPED:
        count = run.get("count")
        return TokenRun(SKIPPED, skipped=count if isinstance(count, int) else 0)
    ids, texts = listing(run.get("token_ids")), listing(run.get("texts"))
    # Without prompts (--redact-prompts) there may be no ids.
    pairs = itertools.zip_longest(texts, ids[: len(texts)], fillvalue="")
    tokens = [(str(text), str(token_id)) for text, token_id in pairs]
    listed, left_out = first(tokens, limits.items)
    if left_out:
        listed.append((f"… {left_out:,} more", ""))
    return TokenRun(kind if kind in (REMOVED, ADDED) else SAME, tuple(listed))
