"""Redaction takes time in proportion to the text, whatever text it is."""

from __future__ import annotations

import string
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.redaction import blocks, library, pairs, patterns
from pytest_vllm_gates.redaction.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 500_000
MOST_GROWTH = 30  # of ten times the text: 10 if it takes time in proportion, 100 if its square
SINGLE = [*string.printable, "\0", "\x1b", "\x7f", "\xa0", "\xe9", "\xff"]
AFTER = ("=", ": ", '="', " ")
OTHERS = [
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN ", "--a",
    "--api-key ", "'name': 'token', 'value': '", "curl -u a:b ", "api_key='a1b2c3d4\n",
    "api_key=[", "key='key", 'key\\\\\\"', "password: ", "-eyJ", "sk-sk-", "SECRET_", "a1b2c3d4=",
    "key" + " " * 50, "aws" + " " * 19,
]  # fmt: skip
PREFIXES = sorted(
    {
        *SINGLE, *OTHERS, *blocks.ANCHORS,
        *(shape.anchor for shape in patterns.shapes()),
        *(anchor for plugin in library.plugins() for anchor in plugin.anchors),
        *(f"{word}{AFTER[number % len(AFTER)]}" for number, word in enumerate(pairs.WORDS)),
    }
)  # fmt: skip


def growth(clean: Callable[[Any], object], small: str | bytes, large: str | bytes) -> float:
    """Return how many times the processor time of the small text the large one takes."""

    def seconds(text: str | bytes) -> float:
        start = time.process_time()
        clean(text)
        return time.process_time() - start

    small_s, large_s = seconds(small), seconds(large)
    if large_s > MOST_GROWTH * small_s:  # the least of several, for the machine may be busy
        small_s = min([small_s, *(seconds(small) for _ in range(2))])
        large_s = min([large_s, *(seconds(large) for _ in range(2))])
    return large_s / small_s


@pytest.mark.alone
def test_ten_times_the_text_takes_about_ten_times_the_time() -> None:
    redactor = Redactor(["correct-horse-9", "zzzzzzzz"])
    redactor.text("sk_live_ glpat- AKC")  # what is read once
    for prefix in PREFIXES:
        text = (prefix * (SIZE // len(prefix) + 1))[:SIZE]
        assert growth(redactor.text, text[: SIZE // 10], text) < MOST_GROWTH, repr(prefix)


@pytest.mark.alone
@pytest.mark.parametrize("prefix", ["a", "key=", "password: ", "-eyJ", "://", "key='"])
def test_request_and_response_take_time_in_proportion(prefix: str) -> None:
    small, large = (
        f'{{"messages": "{prefix * (size // len(prefix))}"}}'.encode()
        for size in (SIZE // 10, SIZE)
    )
    for clean in (Redactor().body, lambda data: Redactor().response([data])):
        clean(small)  # what is read once
        assert growth(clean, small, large) < MOST_GROWTH
