"""Compares an answer with an earlier one up to rounding, and checks that a text is language."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.client.completion import Completion

MARGIN_NATS = 0.5
"""How much less likely the other token may be where two answers diverge. Another batch or a warm
prefix changes the order of sums; in bfloat16 that moves a log-probability by a tenth or two, and by
a few if it sends a token to another expert. See `numerics.toml`."""


@dataclass(frozen=True)
class Sameness:
    """The comparison of an answer with the answer to the same request alone."""

    fault: str | None = None
    """The fault, as a sentence; None for the same answer and for an equivalent one."""
    parts_at: int | None = None
    """The first token in which an equivalent answer differs, counted from 0."""
    behind_nats: float | None = None
    """How much less likely the other token was there than the first answer's, in nats."""


def compare(alone: Completion, answer: Completion, *, invariant: bool) -> Sameness:
    """Compare an answer with the answer alone; `invariant`: only an equal answer is accepted.

    Otherwise an answer is equivalent if its first differing token was nearly as likely.
    """
    if answer.error:
        return Sameness(f"no answer: {answer.error}")
    same_text = _parts(alone) == _parts(answer)
    if same_text and alone.finish_reason == answer.finish_reason:
        return Sameness()
    fault = f"alone {alone.shown}, now {answer.shown}"
    if same_text:
        fault = f"finish_reason: alone {alone.finish_reason!r}, now {answer.finish_reason!r}"
    at = _parts_at(alone.token_ids, answer.token_ids)
    if at is None:
        have_tokens = bool(alone.token_ids and answer.token_ids)
        return Sameness(f"{fault}{', of the same tokens' if have_tokens else ''}")
    behind = None if invariant else _behind(alone, answer, at)
    if behind is not None and behind <= MARGIN_NATS:
        return Sameness(parts_at=at, behind_nats=round(behind, 3))
    why = "" if behind is None else f", where that token was {behind:.2f} nats less likely"
    return Sameness(f"{fault} (from token {at} on{why})")


def _parts(answer: Completion) -> tuple[object, ...]:
    return answer.reasoning, answer.content, answer.calls


def _parts_at(first: tuple[int, ...], second: tuple[int, ...]) -> int | None:
    """Return the first place where two answers' tokens differ, or None."""
    if first == second or not first or not second:
        return None
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(first), len(second)))


def _behind(alone: Completion, answer: Completion, at: int) -> float | None:
    """Return the gap to the other answer's first differing token, by the candidates of either.

    None if that token was not a candidate, or if one answer only ends before the other.
    """
    if at >= min(len(alone.token_ids), len(answer.token_ids)):
        return None
    pairs = ((alone, answer), (answer, alone))
    differences = [
        completion.candidates[at][completion.token_ids[at]]
        - completion.candidates[at][rival.token_ids[at]]
        for completion, rival in pairs
        if at < len(completion.candidates)
        and {completion.token_ids[at], rival.token_ids[at]} <= set(completion.candidates[at])
    ]
    return min(differences, default=None)


def nats_apart(first: Completion, second: Completion) -> float | None:
    """Return the largest difference of log-probabilities over the answers' common beginning.

    None if neither reports any. Only candidates of both count.
    """
    pairs = zip(
        first.token_ids, second.token_ids, first.candidates, second.candidates, strict=False
    )
    apart: list[float] = []
    for one, other, here, there in pairs:
        if one != other:
            break
        apart += [abs(here[token] - there[token]) for token in here.keys() & there.keys()]
    return max(apart, default=None)


REPEATS = 8
"""A unit this many times in a row is a loop. Real prose repeats a word two or three times."""
PERIOD_CHARACTERS = 64
STRETCH_CHARACTERS = 24
"""A shorter repeat is a loop only if it is most of the answer: a billion has nine zeros."""
RULER = re.compile(r"[-=_*#.:~ |+\u2013\u2014\u2026\u00b7\u2500-\u259f]+")
"""The characters of tables, forms and rulers, box drawing included."""
FEW_DISTINCT = 0.2
LONG_ENOUGH_WORDS = 30


def why_degenerate(text: str, markers: Iterable[str] = ()) -> str | None:
    """Return why a healthy model would not write this text, or None for language.

    Faults are: an empty text, only punctuation ("!!!!", what NaN logits print), characters that do
    not decode, special tokens in the text, and loops of a character, a word or a phrase.
    """
    stripped = text.strip()
    if not stripped:
        return "the answer is empty"
    for marker in markers:
        if marker in text:
            return f"the answer contains the marker {marker!r}"
    # DeepSeek writes its special tokens with full-width bars.
    if token := re.search(r"<[|\uff5c][\w▁/-]{1,40}[|\uff5c]>", text):
        return f"the answer contains the special token {token[0]!r}"
    broken = stripped.count("\N{REPLACEMENT CHARACTER}")
    if broken:
        return f"the answer contains {broken} characters that do not decode (U+FFFD)"
    if not any(
        unicodedata.category(character)[0] in "LN" or unicodedata.category(character) == "So"
        for character in stripped
    ):
        return f"the answer is only punctuation: {stripped[:20]!r}"
    return _loop(stripped)


def _loop(text: str) -> str | None:
    """Return the unit that repeats without end, if one does."""
    text = re.sub(r"\s+", " ", text)
    for loop in re.finditer(rf"(.{{1,{PERIOD_CHARACTERS}}}?)\1{{{REPEATS - 1},}}", text):
        long = len(loop[0]) >= min(STRETCH_CHARACTERS, len(text) / 2)
        if long and not RULER.fullmatch(loop[1]):
            return f"the answer repeats {loop[1][:30]!r} {len(loop[0]) // len(loop[1])} times"
    words = re.findall(r"\w+", text.lower())
    if len(words) >= LONG_ENOUGH_WORDS:
        word, count = Counter(words).most_common(1)[0]
        if len(set(words)) / len(words) < FEW_DISTINCT:
            return f"the answer repeats few words: {word!r} is {count} of its {len(words)} words"
    return None
