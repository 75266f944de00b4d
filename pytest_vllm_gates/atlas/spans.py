"""A row's states in words: since when, and until when."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from pytest_vllm_gates.atlas.types import AtlasState, seen_states

if TYPE_CHECKING:
    from collections.abc import Sequence


def words(states: Sequence[tuple[str, AtlasState]]) -> str:
    """Return the states as words: "fails 0.29.0 to 0.31.0, right since 0.32.0"."""
    seen = seen_states(states)
    spans = [
        (state, [release for release, _ in group])
        for state, group in groupby(seen, key=lambda pair: pair[1])
    ]
    parts = []
    for position, (state, releases) in enumerate(spans):
        first, last = position == 0, position == len(spans) - 1
        if state is AtlasState.WRONG:
            parts.append(f"fails {_span(releases)}")
        elif first:
            parts.append(f"right up to {releases[-1]}")
        elif last:
            parts.append(f"right since {releases[0]}")
        else:
            parts.append(f"right {_span(releases)}")
    text = ", ".join(parts) or "not seen"
    gaps = [release for release, state in states if state is AtlasState.NOT_SEEN]
    return f"{text}; not seen: {', '.join(gaps)}" if gaps and parts else text


def _span(releases: Sequence[str]) -> str:
    return f"in {releases[0]}" if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"
