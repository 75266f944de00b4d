"""Does one request of full length fit into the KV cache?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.judge import as_planned
from pytest_vllm_gates.judge.preflight.say import GIB, Said, fails, gib, ok, unknown
from pytest_vllm_gates.memory_plan import plan as memory_plan_plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Room
from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.gpu import visible
from pytest_vllm_gates.preflight.memory import EXPLICIT, SPACE

if TYPE_CHECKING:
    from pytest_vllm_gates.preflight.types import Situation


def kv_cache(situation: Situation) -> Said:
    """One request of full length must fit into what is left for the cache.

    On a GPU that is what the weights leave: activations and graphs, which can only be estimated,
    are left out, so that what fails here fails in any case.
    """
    device, room = situation.bundle.device, _room(situation)
    if not situation.model.config or device not in ("cpu", "cuda") or room is None:
        return unknown("there is no memory plan for this model on this machine")
    try:
        serving = as_planned.serving(situation.serve, situation.bundle.vllm, device)
        planned = memory_plan_plan.plan(shape_of(dict(situation.model.config)), serving, room)
    except UserError as error:
        return unknown(f"no plan can be made: {str(error).splitlines()[0]}")
    if planned.refused:
        return unknown(f"no plan can be made: {planned.refused[0]}")
    needed, available = planned.needed_bytes, planned.kv_memory_bytes
    if planned.fits is None or needed is None or available is None:
        return unknown("what the model takes of this machine cannot be said")
    if planned.fits:
        return ok(f"{gib(needed)} for one request of {planned.context} tokens, {gib(available)}")
    longest = planned.largest_context
    return fails(
        f"To serve at least one request with the model's max seq len ({planned.context}), "
        f"{gib(needed)} KV cache is needed, which is larger than the available KV cache memory "
        f"({gib(max(available, 0))})",
        cause="the weights and the size that is set leave less than one request of that length "
        "takes",
        fix=(f"max_model_len = {longest} in [serve], or " if longest else "")
        + 'more memory, kv_cache_dtype = "fp8", a larger tensor_parallel_size',
    )


def _room(situation: Situation) -> Room | None:
    """Return the memory there is, None where nobody says."""
    machine, explicit = situation.machine, situation.flag(EXPLICIT)
    space = situation.environment.get(SPACE, "").strip()
    if situation.bundle.device == "cpu" and space:  # there it overrides the flag
        return Room(kv_memory=int(space) * GIB) if space.isdecimal() and int(space) else None
    if isinstance(explicit, int) and explicit > 0:
        return Room(kv_memory=explicit)
    if situation.bundle.device == "cpu":
        return None
    share = flags.share(situation) or situation.bundle.utilization
    if machine is None or share is None:
        return None
    totals = [
        machine.memory_bytes if gpu.unified else gpu.memory_bytes
        for gpu in visible(situation, machine)
    ]
    if not totals or totals[0] is None:
        return None
    return Room(device_memory=totals[0], utilization=share, overhead=0)
