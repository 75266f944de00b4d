"""What families and lanes of a project make a fleet: the gates of each, and its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import flags, lane as lanes
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet.plan import Served
from pytest_vllm_gates.incidents.types import CAPTURED
from pytest_vllm_gates.lanes.families import every_family
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family

EVERY = "all"
WITH_INCIDENTS = (CAPTURED, "incidents")
"""Gates that judge what a project keeps, and have nothing to do without."""
BY_OPTION = ("endurance", "lifecycle")
"""Gates that run only where an option asks for them."""
CPU = "cpu"


def served(
    families: Sequence[str], lane_names: Sequence[str], gates: Sequence[str], project: Path
) -> list[Served]:
    """Return the families on the lanes, in the order given; `gates` alone, where there are any.

    Raises `UserError` for a name that is none, and where nothing is left.
    """
    known = verdict_gates.gate_files()
    for gate in gates:
        if gate not in known:
            raise UserError(f"no gate {gate!r}; there are {', '.join(known)}")
    found = []
    for lane_name in lane_names:
        lane = lanes.load(lane_name, project)
        every = every_family(project, lane)
        names = [name for name, why in every.items() if not why]
        names = names if EVERY in families else list(families)
        for name in names:
            family, checkpoint, _ = named.served(name, None, lane, project)
            judging = [
                gate for gate in known if gate not in _idle(family) and (not gates or gate in gates)
            ]
            serve = flags.serving(family, checkpoint, lane)
            size = 0 if lane.device == CPU else flags.devices(serve)
            if judging:
                found.append(Served(family.name, lane.name, tuple(judging), size))
    return found


def _idle(family: Family) -> set[str]:
    """Return the gates that would have nothing to judge."""
    return {
        *WITH_INCIDENTS, *BY_OPTION, *verdict_gates.unasked(family),
        *verdict_gates.not_applicable(family),
    }  # fmt: skip
