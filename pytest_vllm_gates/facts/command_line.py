"""Command lines as people type them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def without(
    arguments: Sequence[str], valued: Collection[str], flags: Collection[str] = ()
) -> list[str]:
    """Return `arguments` without these options: `valued` with their values, and `flags`.

    A value stands in the next argument, after `=`, or, for an option of one letter, right behind.
    """
    left: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in valued:
            next(rest, None)
        elif not (argument in flags or any(_holds(argument, option) for option in valued)):
            left.append(argument)
    return left


def _holds(argument: str, option: str) -> bool:
    return argument.startswith(f"{option}=" if option.startswith("--") else option)
