"""What is left shows the fault, and nothing of it can be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, strategies as st

from pytest_vllm_gates.incidents.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = st.integers(0, 40)


@given(PARTS, st.sets(PARTS))
def test_what_is_needed_is_found_exactly(count: int, wanted: set[int]) -> None:
    parts = list(range(count))
    needed = wanted & set(parts)
    asked: list[tuple[int, ...]] = []

    def shows(kept: Sequence[int]) -> bool:
        asked.append(tuple(kept))
        return needed <= set(kept)

    assert shrink(parts, shows) == tuple(sorted(needed))
    assert len(asked) == len(set(asked)), "a choice was asked for twice"
    assert tuple(parts) not in asked or not parts


@given(PARTS, st.lists(st.sets(PARTS, min_size=1), min_size=1, max_size=3))
def test_of_several_causes_one_is_left_and_whole(count: int, causes: list[set[int]]) -> None:
    parts = list(range(count + 41))

    def shows(kept: Sequence[int]) -> bool:
        return any(cause <= set(kept) for cause in causes)

    left = shrink(parts, shows)
    assert shows(left)
    assert not any(shows([number for number in left if number != part]) for part in left)


def test_what_does_not_depend_on_anything_is_left_empty_at_once() -> None:
    asked = []

    def shows(kept: Sequence[str]) -> bool:
        asked.append(kept)
        return True

    assert shrink(["a", "b", "c"], shows) == ()
    assert len(asked) == 1
    assert shrink([], shows) == ()
