"""The verdict's document in words, for every report alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNRUN = " did not run"
"""How a reason ends that says a gate was not asked for, or not collected."""
INTROSPECTION = "\nassert "
"""Where a reason ends for who does not know the test: what pytest adds comes after it."""


def sentence(document: Mapping[str, Any]) -> str:
    """Return what the verdict means for who is to decide."""
    promotion, lane = document["promotion"], document["lane"]["name"]
    other = document.get("against")
    against = other["lane"]["name"] if other else ""
    if promotion == "PROMOTE":
        beside = f" Nothing that works on {against} broke." if against else ""
        return f"Every gate that applies passed: lane {lane} may go into production.{beside}"
    if promotion == "HOLD":
        return (
            f"No gate failed, but not all of them could speak: lane {lane} is not proven yet, "
            "so keep what serves now."
        )
    kinds = {one["kind"] for one in other["checks"]} if other else set()
    where = ""
    if "regression" in kinds:
        where = f" that works on {against}"
    elif "both" in kinds:
        where = f", on {against} too,"
    return (
        f"Something users would notice{where} is broken: lane {lane} must not go into production."
    )


def reasons(told: Iterable[str]) -> list[str]:
    """Return the reasons in their order, and last which gates did not run: a family's in one."""
    own: list[str] = []
    unrun: dict[str, list[str]] = {}
    for one in told:
        family, _, gate = one.removesuffix(UNRUN).partition(": ")
        if one.endswith(UNRUN) and gate:
            unrun.setdefault(family, []).append(gate)
        else:
            own.append(one)
    return own + [
        f"{family}: {gates[0]}{UNRUN}"
        if len(gates) == 1
        else f"{family}: {len(gates)} gates{UNRUN}: {', '.join(gates)}"
        for family, gates in unrun.items()
    ]


def for_readers(reason: str) -> tuple[str, str]:
    """Return a reason, and what pytest adds to it for who knows the test."""
    says, _, added = reason.partition(INTROSPECTION)
    return says.strip("\n"), f"assert {added}" if added else ""
