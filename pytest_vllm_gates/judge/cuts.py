"""Is what a limit of tokens cut off the beginning of the answer, each part in its field?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.facts.answer import Answer

SHOWN = 80
NO_CHARACTER = "\N{REPLACEMENT CHARACTER}"


def comparable(cut: Answer, plain: Answer) -> bool:
    """Return whether a cut answer was generated as the plain one: if not, it proves nothing."""
    return cut.token_ids == plain.token_ids[: len(cut.token_ids)]


def beginning(cut: Answer, plain: Answer, family: Family) -> Iterator[str]:
    """Yield a sentence for each field of a cut answer that is not the plain one's beginning.

    Both are of one greedy request, and `comparable`. What may be the beginning of a marker at the
    cut does not count, nor half a character.
    """
    for field in ("reasoning", "content"):
        text, whole = getattr(cut, field).strip(), getattr(plain, field).strip()
        text = _ended(text.rstrip(NO_CHARACTER), family)
        if not whole.startswith(text):
            begins = f"begins with {whole[:SHOWN]!r} where nothing is cut"
            yield f"{field} is {text[:SHOWN]!r}, and {begins}"


def _ended(text: str, family: Family) -> str:
    """Return a text without what may be the beginning of a marker at its end."""
    longest = max(
        (size for marker in family.markers for size in range(1, len(marker))
         if text.endswith(marker[:size])),
        default=0,
    )  # fmt: skip
    return text[: len(text) - longest].rstrip()
