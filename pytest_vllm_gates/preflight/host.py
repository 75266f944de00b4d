"""Checks the host: network interfaces and addresses of several nodes, shared memory, open files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.gpu import ELSEWHERE
from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.preflight.types import Situation

HOST_IP = "VLLM_HOST_IP"
NCCL, GLOO, TENSORPIPE = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"
LOOPBACK = "lo"


def network(situation: Situation) -> CheckResult:
    """Variables must name existing interfaces; without them each library chooses its own."""
    if not spans(situation):
        return not_applicable("one machine: nothing goes over a network")
    if situation.machine is None or not situation.own_limits:
        return unknown(ELSEWHERE)
    interfaces = situation.machine.interfaces
    wrong = [*_wrong(situation, interfaces)]
    if wrong:
        present = ", ".join(interface for interface in interfaces if interface != LOOPBACK)
        return fails(
            "; ".join(wrong),
            cause="the value is for another machine, or the cable is in another port; the ranks "
            "would wait for each other until a timeout, or use a slow network",
            fix=f"name an interface of this machine: {present or 'no interface'}; on RDMA cards "
            "ibdev2netdev shows which one is up, and ip -4 addr shows its address",
        )
    missing = [
        variable for variable in (HOST_IP, NCCL, GLOO) if not situation.environment.get(variable)
    ]
    if missing:
        return unknown(
            f"{', '.join(missing)} not set: each library uses the first interface that it finds, "
            "which may be the slow one"
        )
    settings = ", ".join(
        f"{variable}={situation.environment[variable]}" for variable in (HOST_IP, NCCL, GLOO)
    )
    return ok(settings)


def spans(situation: Situation) -> bool:
    """Return whether the lane's ranks are on several machines."""
    several = (flags.count(situation, "nnodes", 1) or 1) > 1
    by_ray = situation.flag("distributed_executor_backend") == "ray"
    return several or by_ray or bool(situation.nodes)


def _wrong(situation: Situation, interfaces: tuple[str, ...]) -> Iterable[str]:
    environment = situation.environment
    if situation.own_address is False:
        yield f"{HOST_IP}={environment.get(HOST_IP)} is not an address of this machine"
    for variable, path in situation.missing_files.items():
        yield f"{variable}={path} does not exist"
    for variable in (NCCL, GLOO, TENSORPIPE) if interfaces else ():
        value = environment.get(variable, "")
        names = [part for part in value.removeprefix("^").removeprefix("=").split(",") if part]
        # NCCL matches the beginning of a name, the whole name after `=`, all others after `^`.
        begins = variable == NCCL and not value.startswith("=")
        missing = [name for name in names if not _exists(name, interfaces, begins=begins)]
        if missing and not value.startswith("^"):
            yield f"{variable}={value}: this machine has no interface {', '.join(missing)}"


def _exists(name: str, interfaces: tuple[str, ...], *, begins: bool) -> bool:
    interface_name = name.partition(":")[0]
    return any(
        interface.startswith(interface_name) if begins else interface == interface_name
        for interface in interfaces
    )


MIB = 2**20
CHUNK = "VLLM_MQ_MAX_CHUNK_BYTES_MB"
CHUNK_MIB, CHUNKS = 16, 10
"""vLLM's ring buffer from its engine to its workers."""
WANTED_FILES = 65535
"""The limit that vLLM sets if it may."""
ASIDE_FILES = 256
"""Open files of a server besides connections: weights, logs, pipes, sockets between processes."""
REQUESTS = 256


def shared_memory(situation: Situation) -> CheckResult:
    """The queue from the engine to its workers needs space in /dev/shm."""
    ranks = (flags.count(situation, "tensor_parallel_size", 1) or 1) * (
        flags.count(situation, "pipeline_parallel_size", 1) or 1
    )
    if ranks == 1 and situation.bundle.device != "cpu":
        return not_applicable("one rank does not share memory with others")
    if situation.machine is None or not situation.own_limits:
        return unknown(ELSEWHERE)
    free = situation.machine.limits.shared_memory_free_bytes
    if free is None:
        return unknown("this machine has no readable /dev/shm")
    chunk = situation.environment.get(CHUNK, "")
    needed = (int(chunk) if chunk.isdecimal() else CHUNK_MIB) * CHUNKS * MIB
    if free >= needed:
        return ok(f"{free // MIB} MiB free in /dev/shm, {needed // MIB} MiB needed")
    return fails(
        f"Insufficient space in /dev/shm for shared-memory allocation: {needed // MIB} MiB "
        f"required, {free // MIB} MiB free",
        cause="a container has 64 MiB by default, or files of dead servers fill it",
        fix="docker run --shm-size=8g, or --ipc=host; to list old files: ls -l /dev/shm",
    )


def open_files(situation: Situation) -> CheckResult:
    """Every request in flight needs an open file."""
    if situation.machine is None or not situation.own_limits:
        return unknown(ELSEWHERE)
    limits = situation.machine.limits.open_files
    if limits is None:
        return unknown("the limit of open files cannot be read")
    soft, hard = (limit if limit >= 0 else WANTED_FILES for limit in limits)
    # vLLM raises the soft limit to its own value, or not at all.
    effective = max(soft, WANTED_FILES) if hard >= WANTED_FILES else soft
    needed = (flags.count(situation, "max_num_seqs", REQUESTS) or REQUESTS) + ASIDE_FILES
    if effective >= needed:
        return ok(f"{effective} may be open, {needed} are needed")
    return fails(
        f"{effective} files may be open (soft {limits[0]}, hard {limits[1]}), but {needed} are "
        "needed for the most requests that may run at once",
        cause="vLLM would warn `Found ulimit of …` and under load die of `OSError: [Errno 24] Too "
        "many open files`",
        fix="ulimit -n 65535; for a service LimitNOFILE=65535; docker run --ulimit nofile=65535",
    )
