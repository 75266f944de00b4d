"""The options as one run's command line spells them: to repeat a run, or a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_vllm_gates.options.record import ALWAYS, Option, options_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.options.table import Options


class Spelled(NamedTuple):
    """Every name of some options: with a value, without one, and with an optional one."""

    valued: tuple[str, ...]
    flags: tuple[str, ...]
    optional: tuple[str, ...]


def names(given: Options, option: Option) -> tuple[str, ...]:
    """Return the names of an option in a run, with the name to print first."""
    theirs = {name.short for name in given.claimed}
    return tuple(
        name for name in (option.short, option.long) if name is not None and name not in theirs
    )


def by_field(given: Options) -> dict[str, tuple[str, ...]]:
    """Return the names of every option, with the name to print first."""
    return {option.field: names(given, option) for option in options_of(type(given))}


def name(given: Options, field: str) -> str:
    """Return the printed name of the option that fills a field."""
    return by_field(given)[field][0]


def typed(given: Options, field: str) -> Iterator[str]:
    """Yield the words that give one option its value; none for the default."""
    (option,) = [option for option in options_of(type(given)) if option.field == field]
    yield from option.typed(names(given, option)[0], getattr(given, field))


def spelled(given: Options, chosen: Callable[[Option], bool]) -> Spelled:
    """Return every name of the chosen options."""
    found: tuple[list[str], list[str], list[str]] = ([], [], [])
    for option in options_of(type(given)):
        if chosen(option):
            place = 2 if option.const is not None else int(option.kind.action == "store_true")
            found[place].extend(names(given, option))
    return Spelled(*map(tuple, found))


def repeated(given: Options, gate: str) -> Iterator[str]:
    """Yield the words that make one gate judge again under these options."""
    for option in options_of(type(given)):
        if option.repeat in (ALWAYS, gate):
            yield from option.typed(names(given, option)[0], getattr(given, option.field))
