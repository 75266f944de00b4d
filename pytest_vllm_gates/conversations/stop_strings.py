"""Chooses stop strings and stop tokens for a request from its answer without a stop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Answer

NEVER = "~~ this text never occurs ~~"

WORD = re.compile(r"\w{3,}")

WORDS = re.compile(r"\w+ \w+")

ACROSS = re.compile(r"\w{2} \w{2}")


def choose(kind: str, answer: Answer) -> str | int | None:
    """Return a stop of this kind for the request that `answer` answers; None without one.

    `occurs` and `straddles` occur in the content and not before it, `in_reasoning` in the
    reasoning, `never` nowhere; `straddles` contains the end of one word and the beginning of
    the next, which no token does. `token_ids` is a token in the later half that is new there.
    """
    if kind == "never":
        return NEVER
    if kind == "token_ids":
        return _token(answer)
    if kind == "in_reasoning":
        return _middle(WORD, answer.reasoning, "")
    if kind == "straddles":
        return _middle(ACROSS, answer.content, answer.reasoning)
    return _middle(WORD, answer.content, answer.reasoning) or _middle(
        WORDS, answer.content, answer.reasoning
    )


def cut(text: str, stop: str) -> str:
    """Return the text up to the first occurrence of the stop."""
    return text.partition(stop)[0]


def _middle(pattern: re.Pattern[str], text: str, before: str) -> str | None:
    """Return the match nearest to the text's middle that does not occur in `before`."""
    matches = [
        match for match in pattern.finditer(text) if match[0] not in before and match.start() > 0
    ]
    if not matches:
        return None
    return min(matches, key=lambda match: abs(match.start() - len(text) // 2))[0]


def _token(answer: Answer) -> int | None:
    ids = answer.token_ids
    if not answer.has_text or answer.tool_calls:
        return None
    # The last token may be the model's own stop.
    later = range(max(1, len(ids) * 2 // 3), len(ids) - 1)
    return next((ids[at] for at in later if ids[at] not in ids[:at]), None)
