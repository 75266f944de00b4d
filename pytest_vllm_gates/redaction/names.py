"""The rule for the names of secrets: variables, flags, headers, JSON fields and names in text.

`data/secret_names.toml` has the words. Standard library only.
"""

from __future__ import annotations

import re
import tomllib
from enum import IntEnum
from functools import cache, lru_cache
from itertools import pairwise

from pytest_vllm_gates import data

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
LONGEST = 80
"""The number of characters of a name that are examined."""
GLUED_KEY = "key"


class Secrecy(IntEnum):
    """How likely a name is the name of a secret. Below `SURE` the value decides, too."""

    NONE = 0
    BARE = 1
    """A word that often names other things: `token`, `key`."""
    LIKELY = 2
    """A word that rarely names other things, or part of a name with several words."""
    SURE = 3


def names_a_secret(name: str) -> bool:
    """Return whether an environment variable with this name is treated as a secret."""
    return secrecy(name) > Secrecy.NONE


def surely_names_a_secret(name: str) -> bool:
    """Return whether a flag, a field or a header with this name is a secret, whatever its value."""
    return secrecy(name) is Secrecy.SURE


@lru_cache(maxsize=2**14)
def secrecy(name: str) -> Secrecy:
    """Return how likely `name`, in any spelling of several words, is the name of a secret."""
    lists = _words()
    words = [] if name in lists["never"] else _split(name[-LONGEST:])
    if not words:
        return Secrecy.NONE
    grade = _grade(words, name)
    return min(grade, Secrecy.LIKELY) if words[0] in lists["choices"] else grade


def _grade(words: list[str], name: str) -> Secrecy:
    lists, last = _words(), len(words) - 1
    if words[last] in lists["harmless_ends"]:
        return _with_harmless_end(words)
    while last > 0 and (words[last].isdigit() or words[last] in lists["dropped_ends"]):
        last -= 1
    if words[last] in lists["harmless_ends"]:
        return Secrecy.NONE
    if not (lists["sure"] | lists["whole"]).isdisjoint(words) or _has_pair(words):
        return Secrecy.SURE
    if words[last] in lists["last"]:
        return Secrecy.SURE if last else Secrecy.LIKELY
    return _likely(words, last, name)


def _likely(words: list[str], last: int, name: str) -> Secrecy:
    lists = _words()
    if not {"secret", "secrets"}.isdisjoint(words):
        return Secrecy.SURE if words[last] in lists["likely"] else Secrecy.LIKELY
    if lists["likely"].isdisjoint(words):
        return Secrecy.NONE
    qualified = not lists["qualifiers"].isdisjoint(words)
    if words[last] in lists["likely"] and not lists["qualifiers"].isdisjoint(words[:last]):
        return Secrecy.SURE
    if not qualified and not lists["innocent"].isdisjoint(words):
        return Secrecy.NONE
    if words[last] in lists["likely"]:
        return Secrecy.LIKELY if last else Secrecy.BARE
    return Secrecy.LIKELY if name.isupper() else Secrecy.BARE


def _with_harmless_end(words: list[str]) -> Secrecy:
    """Return NONE, except for a webhook's URL, a Vault role's id and the id of an access key."""
    if _has_pair(words) and words[-1] in ("url", "id"):
        return Secrecy.SURE
    return Secrecy.LIKELY if words[-3:] == ["access", "key", "id"] else Secrecy.NONE


def _has_pair(words: list[str]) -> bool:
    return not _words()["pairs"].isdisjoint(pairwise(words))


def _split(name: str) -> list[str]:
    """Return the words of a name in lower case; joined words are split."""
    words: list[str] = []
    lists = _words()
    for word in map(str.lower, WORD.findall(name)):
        if word in lists["not_glued"] or word in lists["sure"]:
            words.append(word)
            continue
        end = next((end for end in _glued() if word.endswith(end) and word != end), None)
        if end is None and word.removesuffix("s").endswith(GLUED_KEY):
            before = word.removesuffix("s").removesuffix(GLUED_KEY)
            end = word[len(before) :] if before in lists["qualifiers"] else None
        words += [word] if end is None else [word.removesuffix(end), end]
    return words


@cache
def _glued() -> tuple[str, ...]:
    return tuple(_table()["glued"])


@cache
def _words() -> dict[str, frozenset[str] | frozenset[tuple[str, str]]]:
    return {
        name: frozenset(tuple(entry) if isinstance(entry, list) else entry for entry in entries)
        for name, entries in _table().items()
    }


@cache
def _table() -> dict[str, list[str]]:
    with (data.FOLDER / "secret_names.toml").open("rb") as file:
        return tomllib.load(file)
