"""Do the nodes of a lane that spans several find each other: interface, address, NCCL?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.judge.preflight.say import Said, fails, not_applicable, ok, unknown
from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.gpu import ELSEWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.preflight.types import Situation

HOST_IP = "VLLM_HOST_IP"
NCCL, GLOO, TENSORPIPE = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"
LOOPBACK = "lo"


def network(situation: Situation) -> Said:
    """What the variables name has to be there, and is better named than left to each library."""
    if not _spans(situation):
        return not_applicable("one machine: nothing goes over a network")
    if situation.machine is None or not situation.own_limits:
        return unknown(ELSEWHERE)
    interfaces = situation.machine.interfaces
    wrong = [*_wrong(situation, interfaces)]
    if wrong:
        others = ", ".join(one for one in interfaces if one != LOOPBACK)
        return fails(
            "; ".join(wrong),
            cause="the value is another machine's, or the cable is in another port; the ranks "
            "would wait for each other until a timeout, or use a slow network",
            fix=f"name what is here: {others or 'no interface'}; on RDMA cards ibdev2netdev tells "
            "which is up, and ip -4 addr its address",
        )
    missing = [one for one in (HOST_IP, NCCL, GLOO) if not situation.environment.get(one)]
    if missing:
        return unknown(
            f"{', '.join(missing)} not set: each library takes the interface it finds first, which "
            "may be the slow one"
        )
    named = ", ".join(f"{one}={situation.environment[one]}" for one in (HOST_IP, NCCL, GLOO))
    return ok(named)


def _spans(situation: Situation) -> bool:
    several = (flags.count(situation, "nnodes", 1) or 1) > 1
    by_ray = situation.flag("distributed_executor_backend") == "ray"
    return several or by_ray or bool(situation.nodes)


def _wrong(situation: Situation, interfaces: tuple[str, ...]) -> Iterable[str]:
    environment = situation.environment
    if situation.own_address is False:
        yield f"{HOST_IP}={environment.get(HOST_IP)} is no address of this machine"
    for variable, path in situation.missing_files.items():
        yield f"{variable}={path} is not there"
    for variable in (NCCL, GLOO, TENSORPIPE) if interfaces else ():
        value = environment.get(variable, "")
        names = [one for one in value.removeprefix("^").removeprefix("=").split(",") if one]
        # NCCL takes the beginning of a name, the whole one after `=`, all others after `^`.
        begins = variable == NCCL and not value.startswith("=")
        lost = [one for one in names if not _there(one, interfaces, begins=begins)]
        if lost and not value.startswith("^"):
            yield f"{variable}={value}: this machine has no interface {', '.join(lost)}"


def _there(name: str, interfaces: tuple[str, ...], *, begins: bool) -> bool:
    bare = name.partition(":")[0]
    return any(one.startswith(bare) if begins else one == bare for one in interfaces)
