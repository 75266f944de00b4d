"""The literal pieces that a pattern requires, and the one search for all of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.diagnosis import literals, signature

PATTERNS = [
    pattern
    for each in signature.load_all()
    for entry in each.signatures
    for pattern in (*entry.patterns, *entry.when.after, *entry.when.near)
]


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("out of memory", {"f memory"}),
        ("(?:first one|second one)", {"first one", "d one"}),
        ("(?:abcdef)?x+needed", {"needed"}),
        ("(?:abcdef)+", {"bcdef"}),
        ("(?i)LOUD", {"loud"}),
        (r"a\s+b\d+cdefg", {"defg"}),
        (r"(?=never)hello", {"hello"}),
        (r"(?>hello)\d", {"hello"}),
        (r"(?:hello|world)+ \d", {"hello", "world"}),
        (r"long \d+ error: \d", {"long "}),
        (r"\d+ error", {"error"}),
    ],
)
def test_matching_line_contains_a_required_piece(pattern: str, pieces: set[str]) -> None:
    required = literals.required(pattern)
    lowered = pattern.lower()
    assert all(len(needed) >= literals.MIN_CHARACTERS and needed in lowered for needed in required)
    assert len(required) == len(pieces)
    assert all(any(needed in piece or piece in needed for piece in pieces) for needed in required)


@pytest.mark.parametrize("pattern", [r"\d+", "a|bcdefg", "abc", "(?:long enough)?", '"\\\\"'])
def test_a_pattern_without_a_piece_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no literal piece of 4 characters"):
        literals.required(pattern)


@given(
    st.sampled_from(PATTERNS).flatmap(lambda text: st.tuples(st.just(text), st.from_regex(text)))
)
def test_matches_of_every_shipped_pattern_are_found(case: tuple[str, str]) -> None:
    pattern, line = case
    raw = line.encode("utf-8", "surrogatepass").lower()
    search = literals.any_of(literals.required(pattern))
    assert search.search(raw)
    for choice in literals.choices(pattern):
        assert any(piece.encode() in raw for piece in choice)


@given(st.sets(st.text("abc", min_size=1, max_size=5), min_size=1), st.text("abcd", max_size=40))
def test_search_finds_the_earliest_piece(pieces: set[str], text: str) -> None:
    match = literals.any_of(pieces).search(text.encode())
    starts = [text.find(piece) for piece in pieces if piece in text]
    assert (match.start() if match else None) == (min(starts) if starts else None)
    if match:
        longest = max((piece for piece in pieces if text.startswith(piece, match.start())), key=len)
        assert match[0].decode() == longest


def test_special_characters_are_escaped() -> None:
    assert re.fullmatch(literals.any_of({"a.c", "(x)", "[y]"}), b"(x)")
    assert literals.any_of({"a.c"}).search(b"abc") is None
