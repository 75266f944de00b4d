"""The shrunk parts show the fault, and none of them can be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, strategies as st

from pytest_vllm_gates.incidents.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = st.integers(0, 40)


@given(PARTS, st.sets(PARTS))
def test_needed_parts_are_found_exactly(count: int, needed_numbers: set[int]) -> None:
    parts = list(range(count))
    needed = needed_numbers & set(parts)
    choices: list[tuple[int, ...]] = []

    def shows(choice: Sequence[int]) -> bool:
        choices.append(tuple(choice))
        return needed <= set(choice)

    assert shrink(parts, shows) == tuple(sorted(needed))
    assert len(choices) == len(set(choices)), "a choice was tried twice"
    assert tuple(parts) not in choices or not parts


@given(PARTS, st.lists(st.sets(PARTS, min_size=1), min_size=1, max_size=3))
def test_one_of_several_causes_remains_whole(count: int, causes: list[set[int]]) -> None:
    parts = list(range(count + 41))

    def shows(choice: Sequence[int]) -> bool:
        return any(cause <= set(choice) for cause in causes)

    smallest = shrink(parts, shows)
    assert shows(smallest)
    assert not any(shows([number for number in smallest if number != part]) for part in smallest)


def test_fault_without_a_cause_shrinks_to_nothing() -> None:
    choices = []

    def shows(choice: Sequence[str]) -> bool:
        choices.append(choice)
        return True

    assert shrink(["a", "b", "c"], shows) == ()
    assert len(choices) == 1
    assert shrink([], shows) == ()
