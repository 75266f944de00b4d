"""The features that a server may be deployed with, and the combinations of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

FILE = data.FOLDER / "features.toml"
OVERLAY = Path(__file__).parent / "connector-overlay"
PAIRS, DEPLOYED = "pairs", "deployed"
WITH = "+"
MOST_BOOTS = 12
STRUCTURED_OUTPUTS = "structured outputs"
"""The kind of the features that are backends of structured outputs."""
FOLDER = "{folder}"
"""In a flag's value: an empty folder of the boot."""
CHECKPOINT = "{checkpoint}"
"""In a flag's value: the path of the served checkpoint."""
DRAFT_HEAD = "{draft_head}"
"""In a flag's value: the path of the miniature's draft head."""
BLOCKS = "{blocks}"
"""In a flag's value: the blocks of a cache for hardly more than one request of full context."""
CONNECTORS = "{connectors}"
"""In a variable: the folder of the shipped KV connectors, to import from."""
PYTHONPATH = "PYTHONPATH"
LORA = "lora"
"""In the name of every flag of adapters, which mean nothing without adapters."""
BOOT_S = 60
"""Seconds of a miniature's boot with all requests on two idle cores."""


class Feature(toml.Record):
    """One feature: how to turn it on, and its purpose."""

    name: toml.Name = Field(pattern=r"^[a-z0-9-]+$")
    title: toml.Sentence
    kind: toml.Name
    """Features of one kind exclude one another."""
    serve: dict[str, Any] = Field(default_factory=dict)
    """vLLM's flags."""
    env: dict[str, str] = Field(default_factory=dict)
    before: dict[str, Any] = Field(default_factory=dict)
    """The flags of a server that gets the same requests first, and ends; both share `{folder}`.
    Without flags no such server is booted."""
    rises: tuple[str, ...] = ()
    """Counters of `/metrics` that rise with it during the requests."""
    rests: tuple[str, ...] = ()
    """Counters that do not rise."""
    without: dict[str, Any] = Field(default_factory=dict)
    """The flags that turn it off, if leaving out its own flags is not enough: vLLM may have it on
    by default."""
    recognise: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """A lane has it on if each of these flags has one of the values (no values: any value). `a.b`
    is a key of a flag that is a table. By default its own flags and variables."""
    adapters: int = Field(default=0, ge=0)
    """The number of LoRA adapters served with it, as far as the checkpoint has them."""
    needs_gpu: bool = False
    needs_package: str = ""
    """A package that vLLM requires for it in the lane's environment."""
    needs_cpu_flags: tuple[str, ...] = ()
    """Flags of /proc/cpuinfo; without a GPU, the CPU must have one of them."""
    needs_draft_head: bool = False
    """Whether the miniature must have a draft head."""
    presses_cache: bool = False
    """Whether the concurrent requests exceed its cache."""
    in_pairs: bool = True
    """Whether `pairs` combines it with the others."""
    reference: toml.Sentence

    @property
    def flags(self) -> frozenset[str]:
        """The names of vLLM's flags that turn it on or off, with underscores."""
        recognised = {flag.partition(".")[0] for flag in self.recognise}
        return frozenset({*self.serve, *self.without, *recognised})

    def is_on(self, serve: Mapping[str, Any], env: Mapping[str, str]) -> bool:
        """Return whether a lane's own flags and variables turn it on."""
        spelled = {name.replace("-", "_"): value for name, value in serve.items()}
        if not self.recognise:
            return {**spelled, **self.serve} == spelled and {**env, **self.env} == {**env}
        return all(
            (value := _value(flag, spelled)) is not None and (not values or str(value) in values)
            for flag, values in self.recognise.items()
        )


class Features(toml.Record):
    """The file."""

    features: tuple[Feature, ...]


def _value(flag: str, serve: Mapping[str, Any]) -> Any:
    name, _, key = flag.partition(".")
    value = serve.get(name)
    return value if not key else value.get(key) if isinstance(value, dict) else None


@dataclass(frozen=True)
class Combination:
    """Features that are on together in one boot."""

    features: tuple[Feature, ...]
    deployed: bool = False
    """Whether they are the lane's own features: the other boot is then without them."""

    @property
    def name(self) -> str:
        """Their names, with a plus between."""
        return DEPLOYED if self.deployed else WITH.join(one.name for one in self.features)

    @property
    def boots(self) -> int:
        """How many servers it boots: its own, and the server before it."""
        return 2 if self.before and not self.deployed else 1

    @property
    def summary(self) -> str:
        """The name, with the lane's own features."""
        names = WITH.join(feature.name for feature in self.features)
        if self.deployed:
            return f"{DEPLOYED}: {names or 'none of the known features'}"
        return names

    def booted(
        self, serve: Mapping[str, Any], env: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the flags and variables of the boot, made from the lane's own.

        The boot is the lane's server with the features on or, for the lane's own features, without
        them.
        """
        if not self.deployed:
            variables = {**env, **self.env}
            if PYTHONPATH in env and PYTHONPATH in self.env:
                variables[PYTHONPATH] = os.pathsep.join((self.env[PYTHONPATH], env[PYTHONPATH]))
            return {**serve, **self.serve}, variables
        flags = {flag for one in self.features for flag in one.flags}
        if self.adapters:
            flags |= {name.replace("-", "_") for name in serve if LORA in name}
        kept = {name: value for name, value in serve.items() if name.replace("-", "_") not in flags}
        for feature in self.features:
            kept |= feature.without
        return kept, {name: value for name, value in env.items() if name not in self.env}

    @property
    def serve(self) -> dict[str, Any]:
        """The flags of all of them."""
        return {name: value for feature in self.features for name, value in feature.serve.items()}

    @property
    def before(self) -> dict[str, Any]:
        """The flags of the server that gets the same requests first; empty without one."""
        return {name: value for feature in self.features for name, value in feature.before.items()}

    @property
    def adapters(self) -> int:
        """The number of LoRA adapters served, as far as the checkpoint has them."""
        return max((feature.adapters for feature in self.features), default=0)

    @property
    def env(self) -> dict[str, str]:
        """The variables of all of them."""
        return {name: value for feature in self.features for name, value in feature.env.items()}


def load(path: Path = FILE) -> tuple[Feature, ...]:
    """Return the features that ship."""
    return toml.load(path, Features).features


def with_places(value: Any, places: Mapping[str, str]) -> Any:
    """Return a flag's value with its places filled in, in tables and lists too.

    `places` has the values of `{folder}`, `{checkpoint}`, `{draft_head}`, `{blocks}` and
    `{connectors}`.
    """
    if isinstance(value, dict):
        return {name: with_places(inner, places) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_places(inner, places) for inner in value]
    if isinstance(value, str):
        for place, meant in places.items():
            value = value.replace(place, meant)
    return value


def turned_on(
    features: Iterable[Feature], serve: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[Feature, ...]:
    """Return the features that a lane's own flags and variables turn on."""
    return tuple(feature for feature in features if feature.is_on(serve, env))


def chosen(
    text: str,
    features: Sequence[Feature],
    *,
    gpus: bool,
    serve: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    apart: Collection[str] = (),
) -> tuple[Combination, ...]:
    """Return the combinations of an option's text: `NAME,NAME+NAME`, `deployed` or `pairs`.

    `gpus`: whether the machine has GPUs; without, pairs leave out features that need one. `serve`
    and `env` are the lane's own, in which `deployed` finds its features. `pairs` boots each feature
    of `apart` by itself, because a server that it kills hides the others of its combination. Raises
    `UserError` for an unknown name and for features that exclude one another.
    """
    if text.strip() == PAIRS:
        paired = [one for one in features if one.in_pairs and (gpus or not one.needs_gpu)]
        return (
            *(Combination((one,)) for one in paired if one.name in apart),
            *every_pair([one for one in paired if one.name not in apart]),
        )
    asked: dict[str, Combination] = {}
    for words in filter(None, (words.strip() for words in text.split(","))):
        if words == DEPLOYED:
            on = turned_on(features, serve or {}, env or {})
            asked[DEPLOYED] = Combination(on, deployed=True)
            continue
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
    """Return few combinations that together contain every pair of compatible features.

    A greedy covering array: each pair joins the first combination that it fits. Raises
    `UserError` if that takes more boots than a run may have.
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
        raise UserError(f"unknown feature {name!r}{guess}\n{_known(features)}")
    return found


def _known(features: Sequence[Feature]) -> str:
    return f"known: {PAIRS}, {DEPLOYED}, {', '.join(feature.name for feature in features)}"
