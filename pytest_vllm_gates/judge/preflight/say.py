"""The words a check ends with."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_vllm_gates.preflight.types import State

GIB = 2**30


@dataclass(frozen=True)
class Said:
    """What a check says, before it has its name."""

    state: State
    what: str
    cause: str = ""
    fix: str = ""


def ok(what: str) -> Said:
    """All is well."""
    return Said(State.OK, what)


def fails(what: str, *, cause: str, fix: str) -> Said:
    """A boot would fail."""
    return Said(State.FAILS, what, cause, fix)


def unknown(what: str) -> Said:
    """The facts do not decide."""
    return Said(State.UNKNOWN, what)


def not_applicable(what: str) -> Said:
    """There is nothing to check."""
    return Said(State.NOT_APPLICABLE, what)


def gib(size: float) -> str:
    """Return bytes in GiB, as vLLM prints them."""
    return f"{size / GIB:.2f} GiB"
