"""Does the system grant what a server needs: shared memory between its processes, open files?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.judge.preflight.say import Said, fails, not_applicable, ok, unknown
from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.gpu import ELSEWHERE

if TYPE_CHECKING:
    from pytest_vllm_gates.preflight.types import Situation

MIB = 2**20
CHUNK = "VLLM_MQ_MAX_CHUNK_BYTES_MB"
CHUNK_MIB, CHUNKS = 16, 10
"""vLLM's ring buffer from its engine to its workers."""
WANTED_FILES = 65535
"""What vLLM raises its limit to, where it may."""
ASIDE_FILES = 256
"""Files a server holds that are no connection: weights, logs, pipes, sockets between processes."""
REQUESTS = 256


def shared_memory(situation: Situation) -> Said:
    """The queue from the engine to its workers lies in /dev/shm."""
    ranks = (flags.count(situation, "tensor_parallel_size", 1) or 1) * (
        flags.count(situation, "pipeline_parallel_size", 1) or 1
    )
    if ranks == 1 and situation.bundle.device != "cpu":
        return not_applicable("one rank has nobody to share memory with")
    if situation.machine is None or not situation.own_limits:
        return unknown(ELSEWHERE)
    free = situation.machine.limits.shared_memory_free_bytes
    if free is None:
        return unknown("this machine has no /dev/shm that could be looked at")
    chunk = situation.environment.get(CHUNK, "")
    needed = (int(chunk) if chunk.isdecimal() else CHUNK_MIB) * CHUNKS * MIB
    if free >= needed:
        return ok(f"{free // MIB} MiB free in /dev/shm, {needed // MIB} MiB needed")
    return fails(
        f"Insufficient space in /dev/shm for shared-memory allocation: {needed // MIB} MiB "
        f"required, {free // MIB} MiB free",
        cause="a container has 64 MiB unless told otherwise, or leftovers of dead servers fill it",
        fix="docker run --shm-size=8g, or --ipc=host; leftovers: ls -l /dev/shm",
    )


def open_files(situation: Situation) -> Said:
    """Every request in flight is an open file."""
    if situation.machine is None or not situation.own_limits:
        return unknown(ELSEWHERE)
    limits = situation.machine.limits.open_files
    if limits is None:
        return unknown("the limit of open files cannot be asked for")
    soft, hard = (one if one >= 0 else WANTED_FILES for one in limits)
    # vLLM raises the soft limit as far as it wants, or not at all.
    effective = max(soft, WANTED_FILES) if hard >= WANTED_FILES else soft
    needed = (flags.count(situation, "max_num_seqs", REQUESTS) or REQUESTS) + ASIDE_FILES
    if effective >= needed:
        return ok(f"{effective} may be open, {needed} are needed")
    return fails(
        f"{effective} files may be open (soft {limits[0]}, hard {limits[1]}), and {needed} are "
        "needed for as many requests as may run at once",
        cause="vLLM would warn `Found ulimit of …` and under load die of `OSError: [Errno 24] Too "
        "many open files`",
        fix="ulimit -n 65535; for a service LimitNOFILE=65535; docker run --ulimit nofile=65535",
    )
