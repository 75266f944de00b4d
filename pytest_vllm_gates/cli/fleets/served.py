"""The families and lanes of a fleet: the gates of each, and its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import flags, lane as lanes
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.fleet import needs
from pytest_vllm_gates.fleet.plan import Served
from pytest_vllm_gates.incidents.types import CAPTURED
from pytest_vllm_gates.lanes.families import every_family
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family

EVERY = "all"
WITH_INCIDENTS = (CAPTURED, "incidents")
"""Gates that judge a project's incidents, and have nothing to judge without them."""
BY_OPTION = ("endurance", "lifecycle")
"""Gates that run only with an option."""


def served(
    families: Sequence[str], lane_names: Sequence[str], gates: Sequence[str], project: Path
) -> list[Served]:
    """Return the families on the lanes, in the order given; only `gates`, if there are any.

    Raises `UserError` for an unknown name, and if nothing is left.
    """
    known = verdict_gates.gate_files()
    wanted = [choose("gate", gate, known) for gate in gates] or [*known]
    found = []
    for lane_name in lane_names:
        lane = lanes.load(lane_name, project)
        names: Iterable[str] = families
        if EVERY in families:
            names = (name for name, why in every_family(project, lane).items() if not why)
        for name in names:
            family, checkpoint, _ = named.served(name, None, lane, project)
            idle = _idle(family)
            judging = [gate for gate in known if gate in wanted and gate not in idle]
            serve = flags.serving(family, checkpoint, lane)
            if judging:
                needed = needs.of(checkpoint, lane, serve)
                found.append(Served(family.name, lane.name, tuple(judging), needed))
    return found


def _idle(family: Family) -> set[str]:
    """Return the gates that have nothing to judge."""
    return {
        *WITH_INCIDENTS, *BY_OPTION, *verdict_gates.unasked(family),
        *verdict_gates.not_applicable(family),
    }  # fmt: skip
