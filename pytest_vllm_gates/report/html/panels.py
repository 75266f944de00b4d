"""A panel: charts of one kind of figure beside a table, for one lane or two side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html.charts import OURS, THEIRS, share
from pytest_vllm_gates.report.html.drawing import listing, mapping, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_vllm_gates.report.html.drawing import Drawing
    from pytest_vllm_gates.report.html.sections import Lanes

NONE = "\N{EN DASH}"


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption."""

    caption: str
    drawing: Drawing


@dataclass(frozen=True)
class Panel:
    """Figures of one kind: a description, charts, and a table of all figures."""

    title: str
    says: str
    """The description of the figures, and how to read them."""
    charts: tuple[Chart, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The first cell names the row."""
    left_out: int = 0


@dataclass(frozen=True)
class Side:
    """One lane's record of a family."""

    name: str
    style: str
    family: Mapping[str, Any] = field(repr=False)

    def evidence(self, gate: str, key: str) -> Any:
        """Return the first value that a gate's tests recorded under a key; None for none."""
        return next((value for _, value in self.every(gate, key)), None)

    def every(self, gate: str, key: str) -> Iterator[tuple[str, Any]]:
        """Yield (test, value) of each of a gate's tests that recorded the key."""
        for record in map(mapping, listing(self.family.get("gates"))):
            if record.get("gate") == gate:
                for test in map(mapping, listing(record.get("tests"))):
                    evidence = mapping(test.get("evidence"))
                    if key in evidence:
                        yield str(test.get("test", "?")), evidence[key]


def sides(lanes: Lanes, family: Mapping[str, Any]) -> tuple[Side, ...]:
    """Return our record of a family, then the other lane's record if there is one."""
    ours, theirs = lanes.names
    other = next(
        (
            record
            for record in map(mapping, listing(lanes.theirs.get("families")))
            if record.get("name") == family.get("name")
        ),
        None,
    ) if lanes.theirs else None  # fmt: skip
    found = [Side(theirs, THEIRS, other)] if other else []
    return (Side(ours, OURS, family), *found)


def columns(of: Iterable[str], several: tuple[Side, ...]) -> tuple[str, ...]:
    """Return a column for each figure and lane; between two lanes the change, too."""
    if len(several) == 1:
        return tuple(of)
    return tuple(
        column
        for name in of
        for column in (*(f"{name}, {side.name}" for side in several), "change")
    )


def cells(
    values: Iterable[tuple[float | None, ...]], words: Callable[[float], str]
) -> Iterator[str]:
    """Yield the cells of figures: a value for each lane, and the change between them."""
    for each in values:
        yield from (NONE if value is None else words(value) for value in each)
        if len(each) > 1:
            yield change(before=each[-1], now=each[0])


def change(before: float | None, now: float | None) -> str:
    """Return the change of a figure; a dash where one is not known or was 0."""
    return NONE if before is None or now is None or not before else share(now / before - 1)


def known(value: Any) -> float | None:
    """Return a figure that is not below 0; None for anything else."""
    found = number(value)
    return found if found is not None and found >= 0 else None


def names(several: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all tables, each once, in their order."""
    return list(dict.fromkeys(str(name) for each in several for name in each))
