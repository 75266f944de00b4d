"""What one prompt has and another has not, token by token: evidence for a person to look at."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.goldens import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SHOWN_AROUND = 12
"""Tokens in common that are shown before and after a difference."""
MOST_COMPARED = 2_000
"""Tokens between the first and the last difference; of more, only this many are compared."""
MOST_RUNS = 120
MOST_IN_A_RUN = 80

Run = dict[str, Any]


def token_diff(
    expected: Sequence[int],
    found: Sequence[int],
    of: tuple[str, str],
    piece: Callable[[int], str],
) -> dict[str, Any]:
    """Return the differences of two prompts as JSON, with some tokens around each.

    `of` says where each prompt comes from, `piece` what text a token stands for. `runs` are tokens
    in a row: `same`, `removed` (only expected), `added` (only found), or `skipped` with a count.
    """
    start, end = _common_ends(expected, found)
    entry, other = expected[start : len(expected) - end], found[start : len(found) - end]
    runs = [
        *_same(expected[:start], piece, first=True),
        *_differing(entry[:MOST_COMPARED], other[:MOST_COMPARED], piece),
        *_same(expected[len(expected) - end :], piece, last=True),
    ]
    cut = {
        "not_compared": max(0, len(entry) - MOST_COMPARED) + max(0, len(other) - MOST_COMPARED),
        "runs_left_out": max(0, len(runs) - MOST_RUNS),
    }
    return {
        "of": list(of),
        "tokens": [len(expected), len(found)],
        "runs": runs[:MOST_RUNS],
        **{name: count for name, count in cut.items() if count},
    }


def of_goldens(
    recorded: str | None, now: str, piece: Callable[[int], str]
) -> dict[str, Any] | None:
    """Return the differences of two prompts laid out as goldens; None where there are none.

    Nor where one is no prompt but a refusal, or so long that its middle is not in it.
    """
    entry, other = (recorded_ids(text) if text else None for text in (recorded, now))
    if entry is None or other is None or entry == other:
        return None
    return token_diff(entry, other, ("recorded", "now"), piece)


def recorded_ids(golden: str) -> list[int] | None:
    """Return the token ids in a prompt's golden; None where it does not hold them all."""
    ids: list[int] = []
    for line in golden.splitlines():
        if not line.startswith("  "):
            continue
        words = line.split()
        if not all(word.isdecimal() for word in words):
            return None
        ids += map(int, words)
    return ids or None


def _common_ends(entry: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """Return how many tokens two prompts have in common at their start and at their end."""
    least = min(len(entry), len(other))
    start = 0
    while start < least and entry[start] == other[start]:
        start += 1
    end = 0
    while end < least - start and entry[-1 - end] == other[-1 - end]:
        end += 1
    return start, end


def _differing(
    entry: Sequence[int], other: Sequence[int], piece: Callable[[int], str]
) -> Iterator[Run]:
    matcher = difflib.SequenceMatcher(None, entry, other, autojunk=False)
    for kind, begin, end, their_begin, their_end in matcher.get_opcodes():
        if kind == "equal":
            yield from _same(entry[begin:end], piece)
            continue
        if end > begin:
            yield _run("removed", entry[begin:end], piece)
        if their_end > their_begin:
            yield _run("added", other[their_begin:their_end], piece)


def _same(
    ids: Sequence[int], piece: Callable[[int], str], *, first: bool = False, last: bool = False
) -> Iterator[Run]:
    """Yield tokens in common, those far from any difference as a number."""
    before = 0 if first else SHOWN_AROUND
    after = 0 if last else SHOWN_AROUND
    skipped = len(ids) - before - after
    if skipped <= SHOWN_AROUND:
        if ids:
            yield _run("same", ids, piece)
        return
    if before:
        yield _run("same", ids[:before], piece)
    yield {"kind": "skipped", "count": skipped}
    if after:
        yield _run("same", ids[-after:], piece)


def _run(kind: str, ids: Sequence[int], piece: Callable[[int], str]) -> Run:
    shown = ids[:MOST_IN_A_RUN]
    found: Run = {
        "kind": kind, "token_ids": list(shown), "texts": [visible(piece(number)) for number in shown],
    }  # fmt: skip
    if len(ids) > len(shown):
        found["left_out"] = len(ids) - len(shown)
    return found
