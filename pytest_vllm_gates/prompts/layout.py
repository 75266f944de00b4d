"""Formats prompts as goldens, and compares two of them token by token."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.goldens import conversation_golden, visible
from pytest_vllm_gates.prompts.types import OverLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer

SHOWN_AROUND = 12
"""Common tokens that are shown before and after a difference."""
MOST_COMPARED = 2_000
"""The most tokens between the first and the last difference that are compared."""
MOST_RUNS = 120
MOST_IN_A_RUN = 80

Run = dict[str, Any]


def golden_name(conversation: Conversation) -> str:
    """Return the name of the golden of a conversation's prompt."""
    return f"prompt-{conversation.name}"


def conversation_prompt_golden(
    conversation: Conversation, reference: ReferenceRenderer, family: Family
) -> str:
    """Return the golden's text of a conversation's prompt."""
    return conversation_golden(conversation.title, reference.outcome(conversation.body(family)))


def renders_differently(
    recorded: str | None, conversation: Conversation, reference: ReferenceRenderer, family: Family
) -> bool:
    """Return whether a conversation's prompt differs from the golden; False without a golden."""
    try:
        return recorded not in (None, conversation_prompt_golden(conversation, reference, family))
    except OverLimit:
        return True


def unlike_recorded(
    conversations: Iterable[Conversation],
    recorded: Callable[[str], str | None],
    reference: ReferenceRenderer,
    family: Family,
) -> list[str]:
    """Return the names of the conversations whose prompt differs from the recorded one."""
    return [
        conversation.name
        for conversation in conversations
        if renders_differently(recorded(golden_name(conversation)), conversation, reference, family)
    ]


def lock_changed(parts: Sequence[str], differing: Sequence[str], command: str) -> str:
    """Return what has changed of the files that determine prompts, and the next step."""
    effect = (
        f"conversations that render differently: {', '.join(differing)}"
        if differing
        else "every conversation still renders as recorded"
    )
    return (
        f"changed since it was recorded: {', '.join(parts)}\n{effect}\n"
        f"if the change is meant, accept it: {command}"
    )


def token_diff(
    expected: Sequence[int],
    actual: Sequence[int],
    sources: tuple[str, str],
    piece: Callable[[int], str],
) -> dict[str, Any]:
    """Return the differences of two prompts as JSON, with some tokens around each.

    `sources` names where each prompt comes from, `piece` returns the text of a token. `runs` are
    tokens in a row: `same`, `removed` (only expected), `added` (only actual), or `skipped` with a
    count.
    """
    start, end = _common_ends(expected, actual)
    expected_middle, actual_middle = (
        expected[start : len(expected) - end],
        actual[start : len(actual) - end],
    )
    runs = [
        *_same(expected[:start], piece, first=True),
        *_differing(expected_middle[:MOST_COMPARED], actual_middle[:MOST_COMPARED], piece),
        *_same(expected[len(expected) - end :], piece, last=True),
    ]
    cut = {
        "not_compared": max(0, len(expected_middle) - MOST_COMPARED)
        + max(0, len(actual_middle) - MOST_COMPARED),
        "runs_left_out": max(0, len(runs) - MOST_RUNS),
    }
    return {
        "of": list(sources),
        "tokens": [len(expected), len(actual)],
        "runs": runs[:MOST_RUNS],
        **{name: count for name, count in cut.items() if count},
    }


def golden_diff(
    recorded: str | None, now: str, piece: Callable[[int], str]
) -> dict[str, Any] | None:
    """Return the differences of two prompts in golden format; None if they are equal.

    None, too, if one is a refusal, or so long that its middle is not in the golden.
    """
    before_ids, now_ids = (recorded_ids(text) if text else None for text in (recorded, now))
    if before_ids is None or now_ids is None or before_ids == now_ids:
        return None
    return token_diff(before_ids, now_ids, ("recorded", "now"), piece)


def recorded_ids(golden: str) -> list[int] | None:
    """Return the token ids in a prompt's golden; None if some are left out."""
    ids: list[int] = []
    for line in golden.splitlines():
        if not line.startswith("  "):
            continue
        words = line.split()
        if not all(word.isdecimal() for word in words):
            return None
        ids += map(int, words)
    return ids or None


def _common_ends(first: Sequence[int], second: Sequence[int]) -> tuple[int, int]:
    """Return how many tokens two prompts have in common at their start and at their end."""
    least = min(len(first), len(second))
    start = 0
    while start < least and first[start] == second[start]:
        start += 1
    end = 0
    while end < least - start and first[-1 - end] == second[-1 - end]:
        end += 1
    return start, end


def _differing(
    first: Sequence[int], second: Sequence[int], piece: Callable[[int], str]
) -> Iterator[Run]:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    for kind, begin, end, their_begin, their_end in matcher.get_opcodes():
        if kind == "equal":
            yield from _same(first[begin:end], piece)
            continue
        if end > begin:
            yield _run("removed", first[begin:end], piece)
        if their_end > their_begin:
            yield _run("added", second[their_begin:their_end], piece)


def _same(
    ids: Sequence[int], piece: Callable[[int], str], *, first: bool = False, last: bool = False
) -> Iterator[Run]:
    """Yield common tokens; those far from any difference are yielded as a number."""
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
    texts = [visible(piece(number)) for number in shown]
    run: Run = {"kind": kind, "token_ids": list(shown), "texts": texts}
    if len(ids) > len(shown):
        run["left_out"] = len(ids) - len(shown)
    return run
