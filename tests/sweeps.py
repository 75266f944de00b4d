"""Many cases of one kind on a real server: a few in every run, all with `-m slow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from _pytest.mark import ParameterSet

Case = TypeVar("Case")


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """How it is called."""


def sweep(
    cases: Iterable[Case], name: Callable[[Case], str], always: Callable[[Case], object]
) -> list[ParameterSet]:
    """Return every case as a parameter, its `name` as id; `slow` unless it is to run `always`."""
    return [
        pytest.param(case, id=name(case), marks=[] if always(case) else [pytest.mark.slow])
        for case in cases
    ]


def named(*names: str) -> Callable[[Named], bool]:
    """Return whether a case's name is one of these."""
    return lambda case: case.name in names


def first_of_each(cases: Sequence[Case], kind: Callable[[Case], object]) -> Callable[[Case], bool]:
    """Return whether a case is the first of its kind."""
    firsts = {kind(case): case for case in reversed(cases)}
    return lambda case: firsts[kind(case)] is case
