"""A shipped gate is found and judges as written, whatever the project's settings are."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

PACKAGE = __name__.partition(".")[0]


class GateModule(pytest.Module):
    """A shipped gate's file: its tests are found whatever the project's naming rules are."""

    def funcnamefilter(self, name: str) -> bool:
        """Return whether a function of that name is a test."""
        return name.startswith("test_")


def refuse(items: Iterable[pytest.Item], gates: Container[Path]) -> None:
    """Raise `pytest.UsageError` if a conftest.py replaces a fixture of the gates.

    Such a fixture does not return a server, and its failures would be blamed on one.
    """
    for item in items:
        if item.path not in gates:
            continue
        # A test gets the last of several fixtures with one name.
        for name, (*others, taken) in item._fixtureinfo.name2fixturedefs.items():  # type: ignore[attr-defined]  # noqa: SLF001
            file = _file(taken)
            if others and _is_ours(others[0]) and not _is_ours(taken) and file != str(item.path):
                raise pytest.UsageError(
                    f"{file}: its fixture {name!r} replaces the gates' own, and they "
                    "would judge with it\n"
                    "rename it, or leave it out: pytest --noconftest --model ..."
                )


def _file(fixture: pytest.FixtureDef[object]) -> str:
    return inspect.getsourcefile(fixture.func) or fixture.func.__module__


def _is_ours(fixture: pytest.FixtureDef[object]) -> bool:
    return fixture.func.__module__.partition(".")[0] == PACKAGE
