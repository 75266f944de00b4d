"""Regular expressions of users' files: checked before they are compiled, run for a bounded time."""

from __future__ import annotations

import re
import warnings
from functools import cached_property, lru_cache
from re import _parser  # type: ignore[attr-defined]  # the one place that knows a pattern's parts
from typing import Any, cast

import regex

from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError

MOST_CHARACTERS = 4_000
MOST_REPEATS = 100_000
"""Most characters that a pattern's shortest match has; some engines expand repeats in memory."""
SECONDS = 1.0
"""Time limit of one search; the shipped patterns take less than 1 ms for the longest line."""
FEW_LENGTHS, MANY_CHOICES = 10, 7
REFERENCES = {"GROUPREF", "GROUPREF_EXISTS"}
REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
# In `regex` a brace may begin an inexact match, `a{e<=1}`; in `re` it is a brace.
BRACE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?:\d+,?\d*|,\d+)\}|(?P<plain>\{)", re.DOTALL)
# Sentences that have nothing in common.
UNRELATED = ("qzj vkx wyp", "VKX 74 QZJ: wyp", "'wyp' (qzj), vkx!")


class SlowPatternError(UserError):
    """A pattern took too long over a text."""


class BoundedPattern:
    """A compiled pattern, as `re.compile` returns it, whose searches end in `SECONDS`."""

    def __init__(self, pattern: str) -> None:
        """Raises `ValueError`, as `checked` does."""
        self.pattern = pattern
        self._re, self._risky = _compiled(pattern)

    @property
    def groupindex(self) -> dict[str, int]:
        """The numbers of its named groups."""
        return dict(self._re.groupindex)

    @cached_property
    def _timed(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return regex.compile(BRACE.sub(_escaped_brace, self.pattern))

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match; raises `SlowPatternError`."""
        if not self._risky:
            return self._re.search(text)
        try:
            return cast("re.Match[str] | None", self._timed.search(text, timeout=SECONDS))
        except TimeoutError as error:
            raise SlowPatternError(
                f"the pattern {excerpt(self.pattern)} took more than {SECONDS:g} s over a text of "
                f"{len(text)} characters\nwrite it without repeats inside of repeats, such as "
                "(a+)+, or alternatives that begin alike"
            ) from error


def checked(pattern: str) -> BoundedPattern:
    """Return a compiled pattern; raises `ValueError` for an invalid or too large one."""
    return BoundedPattern(pattern)


def matches_everything(pattern: BoundedPattern) -> bool:
    """Return whether a pattern matches texts that have nothing in common."""
    return bool(pattern.search("")) or all(pattern.search(text) for text in UNRELATED)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> tuple[re.Pattern[str], bool]:
    """Return a pattern compiled by `re`, and whether its search may take long."""
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(
            f"a pattern of {len(pattern)} characters, more than {MOST_CHARACTERS}: "
            f"{excerpt(pattern)}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            size, choices = _measured(_parser.parse(pattern))
            if size > MOST_REPEATS:
                raise ValueError(
                    f"{excerpt(pattern)} has more than {MOST_REPEATS} characters with its "
                    "repeats expanded"
                )
            return re.compile(pattern), choices >= MANY_CHOICES
    except re.error as error:
        raise ValueError(f"{excerpt(pattern)} is not a regular expression: {error}") from error
    except (OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"{excerpt(pattern)} is not a regular expression: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    return "its groups are nested too deep" if isinstance(error, RecursionError) else str(error)


def _measured(sequence: Any) -> tuple[int, int]:
    """Return a pattern's length with its repeats expanded, and the number of a search's choices.

    A repeat of many lengths, and a repeat of choices, count as `MANY_CHOICES`.
    """
    size = choices = 0
    for operation, argument in sequence:
        name = str(operation)
        least, most = (int(number) for number in argument[:2]) if name in REPEATS else (1, 1)
        measures = [_measured(part) for part in _parts(name, argument)]
        inner = sum(part_choices for _, part_choices in measures)
        size += max(1, least) * (1 + sum(part_size for part_size, _ in measures))
        choices += inner + (least < most or name == "BRANCH")
        if most - least > FEW_LENGTHS or (most > 1 and inner) or name in REFERENCES:
            choices += MANY_CHOICES
    return size, choices


def _parts(name: str, argument: Any) -> list[Any]:
    """Return the patterns inside of one operation of a pattern."""
    if name in REPEATS:
        return [argument[2]]
    if name in {"SUBPATTERN", "ASSERT", "ASSERT_NOT"}:
        return [argument[-1]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "BRANCH":
        return list(argument[1])
    return [part for part in argument[1:] if part] if name == "GROUPREF_EXISTS" else []


def _escaped_brace(match: re.Match[str]) -> str:
    return r"\{" if match["plain"] else match[0]
