"""Command lines as people type them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def without(
    arguments: Sequence[str],
    valued: Collection[str],
    flags: Collection[str] = (),
    optional: Collection[str] = (),
) -> list[str]:
    """Return `arguments` without these options: `valued` with their values, and `flags`.

    A value stands in the next argument, after `=`, or, for an option of one letter, right behind.
    Those that are `optional` may be without one, before another option or at the end.
    """
    left: list[str] = []
    rest = iter(arguments)
    may_follow = False
    for argument in rest:
        follows, may_follow = may_follow, argument in optional
        if follows and not argument.startswith("-"):
            continue
        if argument in valued:
            next(rest, None)
        elif may_follow or any(_holds(argument, option) for option in optional):
            continue
        elif not (argument in flags or any(_holds(argument, option) for option in valued)):
            left.append(argument)
    return left


def _holds(argument: str, option: str) -> bool:
    return argument.startswith(f"{option}=" if option.startswith("--") else option)
