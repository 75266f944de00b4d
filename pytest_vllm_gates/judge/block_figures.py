"""The figures of blocks, side by side: evidence for a person to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.catalog.plans import Block, Pair

NAMES = ("output_tokens_per_s", "ttft_s", "itl_s")
MOST = 200
"""Blocks a side; of more, as many evenly taken."""

Sides = dict[str, dict[str, list[float]]]


def side_by_side(ours: Iterable[Block], theirs: Iterable[Block]) -> Sides:
    """Return each side's figures by name, one a block, in the order they were measured."""
    return {"ours": _figures([*ours]), "theirs": _figures([*theirs])}


def of_pairs(pairs: Iterable[Pair]) -> Sides:
    """Return the same of pairs of boots."""
    groups = [group for pair in pairs for group in pair.groups]
    return side_by_side(
        (block for group in groups for block in group.ours),
        (block for group in groups for block in group.theirs),
    )


def _figures(blocks: Sequence[Block]) -> dict[str, list[float]]:
    whole = [one for one in blocks if not one.faults]
    step = max(1, -(-len(whole) // MOST))
    return {name: [round(getattr(one, name), 5) for one in whole[::step]] for name in NAMES}
