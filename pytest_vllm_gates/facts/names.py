"""Names as people type them: case and punctuation do not count, and a near miss gets a guess."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

from pytest_vllm_gates.errors import UserError


def fold(name: str) -> str:
    """Return the form in which names are compared: `Qwen-3.5` and `qwen35` are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name a person most likely meant, or None when nothing is close."""
    by_fold = {fold(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(fold(name), by_fold, n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def matches(pattern: str, name: str) -> bool:
    """Return whether `name` is what `pattern` says, where `*` stands for any text.

    Nothing else is special: names of tests have brackets in them.
    """
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL))


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` spells.

    Raises `UserError` with every known name and the nearest one when there is no such name.
    """
    known = sorted(known)
    for candidate in known:
        if fold(candidate) == fold(name):
            return candidate
    guess = nearest(name, known)
    hint = f"; did you mean {guess!r}?" if guess else ""
    raise UserError(f"unknown {kind} {name!r}{hint}\nknown: {', '.join(known) or 'none'}")
