"""Splits families, lanes and features into shards of about the same duration.

The same arguments give the same shards under the same names, whatever was recorded: only with
`shard_s` do recorded times decide how many gates share a shard.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet.durations import FEATURES
from pytest_vllm_gates.fleet.shards import FleetPlan, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.fleet.durations import Durations
    from pytest_vllm_gates.fleet.shards import Needs

NAME_CHARACTERS = 50
"""Kubernetes allows 63 in all, and appends an index and five characters."""


@dataclass(frozen=True)
class Served:
    """A family on a lane, as it is served."""

    family: str
    lane: str
    gates: tuple[str, ...]
    """The gates that apply, in the order in which they run."""
    needs: Needs


def compose(
    wanted: Iterable[Served],
    features: Sequence[str],
    durations: Durations,
    shard_s: float | None = None,
) -> FleetPlan:
    """Return the plan of the gates of every served family, and of each set of features.

    `shard_s`: the intended maximum of a shard; a gate that takes longer has its own shard. Without
    it a family on a lane is one shard.
    """
    shards: list[Shard] = []
    for served in wanted:
        gates = [gate for gate in served.gates if gate != FEATURES]
        parts = _parts(served, gates, durations, shard_s)
        shards += [_shard(served, "", part, durations) for part in parts]
        if FEATURES in served.gates:
            shards += [_shard(served, each, (FEATURES,), durations) for each in features]
    if not shards:
        raise UserError("no gate is left to run: list the gates: pytest --markers")
    return FleetPlan(_named(shards))


def _shard(served: Served, features: str, gates: Sequence[str], durations: Durations) -> Shard:
    seconds = durations.boot_s(served.family, served.lane) + sum(
        durations.gate_s(served.family, served.lane, gate) for gate in gates
    )
    return Shard(
        "", served.family, served.lane, features, tuple(gates), math.ceil(seconds), served.needs
    )


def _parts(
    served: Served, gates: Sequence[str], durations: Durations, shard_s: float | None
) -> list[tuple[str, ...]]:
    """Return the gates in groups, in their order, each below the limit if it can be.

    A gate that does not fit into the last group begins the next one.
    """
    if not gates:
        return []
    if shard_s is None:
        return [tuple(gates)]
    room_s = shard_s - durations.boot_s(served.family, served.lane)
    parts: list[list[str]] = []
    left_s = 0.0
    for gate in gates:
        needed_s = durations.gate_s(served.family, served.lane, gate)
        if not parts or needed_s > left_s:
            parts.append([])
            left_s = room_s
        parts[-1].append(gate)
        left_s -= needed_s
    return [tuple(part) for part in parts]


def _named(shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """Return the shards with their names: family, lane, features and, of several, a number."""
    named = []
    for _, group in itertools.groupby(shards, key=lambda shard: shard.place):
        alike = list(group)
        words = _words(alike[0])
        for number, shard in enumerate(alike, 1):
            name = words if len(alike) == 1 else f"{words}-{number}"
            named.append(_with_name(shard, name))
    taken: dict[str, int] = {}
    result = []
    for shard in named:
        # `qwen3.5` and `qwen3-5` would have the same name.
        taken[shard.name] = taken.get(shard.name, 0) + 1
        again = f"-x{taken[shard.name]}" if taken[shard.name] > 1 else ""
        result.append(_with_name(shard, shard.name + again))
    return tuple(result)


def _words(shard: Shard) -> str:
    text = "-".join(word for word in (shard.family, shard.lane, shard.features) if word)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:NAME_CHARACTERS].rstrip("-")


def _with_name(shard: Shard, name: str) -> Shard:
    return replace(shard, name=name)


def batches(shards: Sequence[Shard], most: int | None) -> list[tuple[Shard, ...]]:
    """Return the shards in as few groups as a limit of jobs allows; one group without a limit."""
    size = most or len(shards)
    return [tuple(shards[at : at + size]) for at in range(0, len(shards), size)]
