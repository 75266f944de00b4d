"""The least of something that still shows a fault: delta debugging (Zeller, Hildebrandt 2002)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


def shrink(parts: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """Return parts, in their order, that still show it, and of which none can be left out alone.

    `shows` is asked for no choice twice, and not for all parts: they are known to show it. Where it
    answers by chance, what is returned has shown it at least once.
    """
    left = tuple(parts)
    asked: dict[tuple[int, ...], bool] = {}
    places = tuple(range(len(left)))

    def answers(kept: tuple[int, ...]) -> bool:
        if kept not in asked:
            asked[kept] = shows([left[at] for at in kept])
        return asked[kept]

    pieces = 1
    while places:
        smaller = next((kept for kept in _without_a_piece(places, pieces) if answers(kept)), None)
        if smaller is not None:
            pieces = max(1, pieces - 1) if len(smaller) > 1 else 1
            places = smaller
        elif pieces >= len(places):
            break
        else:
            pieces = min(2 * pieces, len(places))
    return tuple(left[at] for at in places)


def _without_a_piece(places: tuple[int, ...], pieces: int) -> Iterator[tuple[int, ...]]:
    """Yield the places without each of so many pieces; without all of them for one."""
    size = -(-len(places) // pieces)
    for begin in range(0, len(places), size):
        yield places[:begin] + places[begin + size :]
