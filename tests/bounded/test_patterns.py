"""Patterns of users' files are compiled within limits, and their searches end."""

from __future__ import annotations

import contextlib
import re
import time
import warnings

import pytest

from pytest_vllm_gates.bounded import patterns
from pytest_vllm_gates.bounded.patterns import SlowPatternError


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a{99999999999}", "the repetition number is too large"),
        ("(", "is not a regular expression: missing"),
        ("(" * 1500 + ")" * 1500, "nested too deep"),
        ("(?:a{60000}){60000}", "has more than 100000 characters"),
        ("x" * 4001, "a pattern of 4001 characters, more than 4000"),
        ("\\", "is not a regular expression: bad escape"),
        ("(?<=a+)b", "is not a regular expression: look-behind"),
        ("[z-a]", "is not a regular expression: bad character range"),
    ],
)
def test_bad_pattern_is_a_value_error(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        patterns.checked(pattern)
    assert not isinstance(raised.value, re.error)
    assert len(str(raised.value)) < 400


def test_search_that_takes_too_long_names_the_pattern() -> None:
    with pytest.raises(SlowPatternError, match=r"^the pattern '\(a\|aa\)\+\$' took more than 1 s"):
        patterns.checked("(a|aa)+$").search("a" * 200 + "b")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 40 + "b"), ("(a|aa)+$", "a" * 60 + "b"), ("(a|a)*b", "a" * 60),
        ("(.*a){20}$", "a" * 60 + "b"), (r"\s+$", " " * 20_000 + "x"), ("(a*)*b", "a" * 60),
        ("(x?x?x?x?x?x?x?x?x?x?x?x?)" * 8 + "0", "x" * 100), (".*.*.*x", "a" * 20_000),
        ("[a-z]{1,90}" * 3 + "0", "a" * 20_000), ("(?=(a+)+b)c", "a" * 60), (r"(a*)*b\1", "a" * 99),
    ],
)  # fmt: skip
def test_search_ends_in_time(pattern: str, text: str) -> None:
    begun = time.monotonic()
    with contextlib.suppress(SlowPatternError):
        assert patterns.checked(pattern).search(text) is None
    assert time.monotonic() - begun < 4


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a{e}b", "a{e}b"), ("a{e}b.*", "ab"), ("{i<=1}.*x", "{i<=1}x"), (r"[{e}]+x.*", "e}x"),
        (r"\{e}.*", "{e}"), ("(?P<name>a+)=(?P<value>.*)", "aa=b"), ("(?i)ERROR.*:(.*)", "error:x"),
        (r"^\d{1,3}-(?:a|bc)*$", "12-abca"), (r"(?:a{2,}|\w+)\b", "x aaa"), (r"\Aa.*\Z", "ab"),
        ("[[a]&&b]*x", "a&&b]x"), (r"a{,20}b", "aab"),
    ],
)  # fmt: skip
def test_match_is_that_of_the_standard_library(pattern: str, text: str) -> None:
    found = patterns.checked(pattern).search(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = re.compile(pattern).search(text)
    assert (found and (found.span(), found.groupdict())) == (
        wanted and (wanted.span(), wanted.groupdict())
    )


@pytest.mark.parametrize(
    "pattern", ["", ".", ".*", ".+", r"\w", r"\w+", "[a-z]", r"[\s\S]", "a*", "(?s).+?", r"\b", " ",
                "(?!never)", "x|", "^", "$", "[^~]", "^(?!the server)"]
)  # fmt: skip
def test_pattern_that_matches_everything_is_known(pattern: str) -> None:
    assert patterns.matches_everything(patterns.checked(pattern))


@pytest.mark.parametrize(
    "pattern", ["^answered 200", "finish_reason is 'stop'", r"\d+ tokens", "content", "'x'", ": "]
)
def test_pattern_with_words_matches_not_everything(pattern: str) -> None:
    assert not patterns.matches_everything(patterns.checked(pattern))
