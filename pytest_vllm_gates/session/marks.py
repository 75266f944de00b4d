"""Marks of `-m` that are not declared: mostly a gate's name, mistyped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = re.compile(r"[A-Za-z_]\w*(?!\w|\s*=)")
OPERATORS = {"and", "or", "not", "True", "False", "None"}


def check(expression: str, declared: Iterable[str], gates: Iterable[str]) -> None:
    """Raise `UserError` for an undeclared mark that is similar to a gate's name.

    `declared` are lines of pytest's `markers`. Any other mark may be a project's own.
    """
    known = {re.split(r"[(:]", line, maxsplit=1)[0].strip() for line in declared}
    for name in NAME.findall(expression):
        if name in known or name in OPERATORS:
            continue
        if guess := nearest(name, gates):
            raise UserError(
                f"no test has the mark {name!r}; did you mean {guess!r}?\n"
                f"run it: -m {guess}; every mark: pytest --markers"
            )
