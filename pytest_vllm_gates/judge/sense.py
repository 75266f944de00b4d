"""Does an answer make sense, for any model: is it language, and not a broken kernel's output?"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

REPEATS = 8
"""A unit this many times in a row is a loop. Real prose repeats a word two or three times."""
PERIOD_CHARACTERS = 64
STRETCH_CHARACTERS = 24
"""A shorter loop is one only if it is most of the answer: a billion has nine zeros."""
RULER = re.compile(r"[-=_*#.:~ |+\u2013\u2014\u2026\u00b7\u2500-\u259f]+")
"""What tables, forms and rulers are drawn with, box drawing included."""
FEW_DISTINCT = 0.2
LONG_ENOUGH_WORDS = 30


def why_degenerate(text: str, markers: Iterable[str] = ()) -> str | None:
    """Return what is wrong with a text no healthy model writes, or None when it reads as language.

    Found are: nothing at all, only punctuation ("!!!!", what NaN logits print), characters that do
    not decode, special tokens in the text, and loops of a character, a word or a phrase.
    """
    stripped = text.strip()
    if not stripped:
        return "the answer is empty"
    for marker in markers:
        if marker in text:
            return f"the answer holds the marker {marker!r}"
    # DeepSeek writes its special tokens with full-width bars.
    if token := re.search(r"<[|\uff5c][\w▁/-]{1,40}[|\uff5c]>", text):
        return f"the answer holds the special token {token[0]!r}"
    broken = stripped.count("\N{REPLACEMENT CHARACTER}")
    if broken:
        return f"the answer holds {broken} characters that do not decode (U+FFFD)"
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
            return f"the answer says little: {word!r} is {count} of its {len(words)} words"
    return None
