"""The features that a server may be deployed with, and the combinations of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FILE = data.FOLDER / "features.toml"
PAIRS = "pairs"
WITH = "+"
MOST_BOOTS = 12


class Feature(toml.Record):
    """One feature: what turns it on, and what it is for."""

    name: toml.Name = Field(pattern=r"^[a-z0-9-]+$")
    title: toml.Sentence
    kind: toml.Name
    """Features of one kind exclude one another."""
    serve: dict[str, Any] = Field(default_factory=dict)
    """vLLM's flags."""
    env: dict[str, str] = Field(default_factory=dict)
    rises: tuple[str, ...] = ()
    """Counters of `/metrics` that rise with it while the questions are asked."""
    rests: tuple[str, ...] = ()
    """Counters that do not."""
    adapters: int = Field(default=0, ge=0)
    """So many LoRA adapters are served with it, as far as the checkpoint has them."""
    needs_gpu: bool = False
    reference: toml.Sentence


class Features(toml.Record):
    """The file."""

    features: tuple[Feature, ...]


@dataclass(frozen=True)
class Combination:
    """Features that are on together in one boot."""

    features: tuple[Feature, ...]

    @property
    def name(self) -> str:
        """Their names, with a plus between."""
        return WITH.join(feature.name for feature in self.features)

    @property
    def serve(self) -> dict[str, Any]:
        """The flags of all of them."""
        return {name: value for feature in self.features for name, value in feature.serve.items()}

    @property
    def adapters(self) -> int:
        """So many LoRA adapters are served, as far as the checkpoint has them."""
        return max(feature.adapters for feature in self.features)

    @property
    def env(self) -> dict[str, str]:
        """The variables of all of them."""
        return {name: value for feature in self.features for name, value in feature.env.items()}


def load(path: Path = FILE) -> tuple[Feature, ...]:
    """Return the features that ship."""
    return toml.load(path, Features).features


def chosen(text: str, features: Sequence[Feature], *, gpus: bool) -> tuple[Combination, ...]:
    """Return the combinations that an option's text asks for: `NAME,NAME+NAME` or `pairs`.

    `gpus`: whether the machine has some; without, pairs leave out what needs one. Raises
    `UserError` for a name that is not known and for features that exclude one another.
    """
    if text.strip() == PAIRS:
        return every_pair([one for one in features if gpus or not one.needs_gpu])
    asked: dict[str, Combination] = {}
    for words in filter(None, (words.strip() for words in text.split(","))):
        combination = Combination(tuple(_named(word, features) for word in words.split(WITH)))
        for one, other in combinations(combination.features, 2):
            if one.kind == other.kind:
                raise UserError(
                    f"{one.name} and {other.name} exclude one another: both are {one.kind}"
                )
        asked[combination.name] = combination
    if not asked:
        raise UserError(f"no feature is named: {_known(features)}")
    return tuple(asked.values())


def every_pair(features: Sequence[Feature]) -> tuple[Combination, ...]:
    """Return few combinations in which every two features that go together are on together.

    A greedy covering array: each pair joins the first combination that it goes with. Raises
    `UserError` where that takes more boots than a run may have.
    """
    rows: list[list[Feature]] = []
    for pair in combinations(features, 2):
        if pair[0].kind == pair[1].kind or any(all(one in row for one in pair) for row in rows):
            continue
        row = next((row for row in rows if _goes_with(pair, row)), None)
        if row is None:
            row = []
            rows.append(row)
        row += [feature for feature in pair if feature not in row]
    if len(rows) > MOST_BOOTS:
        raise UserError(
            f"every pair of {len(features)} features takes {len(rows)} boots, and {MOST_BOOTS} "
            "are the most: name fewer"
        )
    in_order = [sorted(row, key=features.index) for row in rows]
    return tuple(Combination(tuple(row)) for row in in_order)


def _goes_with(pair: Iterable[Feature], row: Sequence[Feature]) -> bool:
    return all(
        feature in row or feature.kind not in {other.kind for other in row} for feature in pair
    )


def _named(word: str, features: Sequence[Feature]) -> Feature:
    name = word.strip()
    found = next((feature for feature in features if feature.name == name), None)
    if found is None:
        close = toml.nearest(name, [feature.name for feature in features])
        guess = f"; did you mean {close!r}?" if close else ""
        raise UserError(f"there is no feature {name!r}{guess}\n{_known(features)}")
    return found


def _known(features: Sequence[Feature]) -> str:
    return f"known: {PAIRS}, {', '.join(feature.name for feature in features)}"
