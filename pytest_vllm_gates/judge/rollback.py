"""Where to go back to when a bundle is rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.verdict.verdict import Promotion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Back:
    """The lane to go back to."""

    lane: str
    since: str | None = None
    """When it was promoted, where only the record of this project's runs says that it was."""


def back(
    promotion: Promotion,
    lane: str,
    against: str | None,
    history: Sequence[Mapping[str, Any]] = (),
) -> Back | None:
    """Return the lane to go back to from `lane`; None where nothing was rejected, or none is known.

    The lane that a run was held against is what serves; without one it is what was promoted last,
    by `history`, the oldest first.
    """
    if promotion is not Promotion.REJECT:
        return None
    if against is not None and against != lane:
        return Back(against)
    for entry in reversed(history):
        if entry["promotion"] == Promotion.PROMOTE:
            return Back(str(entry["lane"]), str(entry["created"]))
    return None
