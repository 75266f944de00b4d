"""Checks the links of a lane over several nodes: NCCL's code, MTUs, Ray's memory limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.compiled_kernels import compiles_for, runs_natively
from pytest_vllm_gates.preflight.gpu import ELSEWHERE, needs_no_gpu, visible
from pytest_vllm_gates.preflight.host import GLOO, NCCL, spans
from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from pytest_vllm_gates.environment.types import Library
    from pytest_vllm_gates.preflight.types import Situation

ONE_MACHINE = "one machine: nothing goes over a network"
OWN_NCCL = "VLLM_NCCL_SO_PATH"
HEADERS = 28
"""Bytes of the IPv4 and ICMP headers, which ping adds to its payload."""
THRESHOLD, REFRESH = "RAY_memory_usage_threshold", "RAY_memory_monitor_refresh_ms"
USUAL_THRESHOLD = 0.95


def nccl(situation: Situation) -> CheckResult:
    """NCCL's library must have code for the GPUs: a Spark needs it for 12.1."""
    if check_result := needs_no_gpu(situation):
        return check_result
    ranks = (flags.count(situation, "tensor_parallel_size", 1) or 1) * (
        flags.count(situation, "pipeline_parallel_size", 1) or 1
    )
    if ranks == 1 and not spans(situation):
        return not_applicable("one rank sends nothing to others")
    library = situation.nccl_library or next(
        (each for each in situation.bundle.libraries if "libnccl" in each.name), None
    )
    gpus = visible(situation, situation.machine) if situation.machine else ()
    numbers = {int(gpu.capability.replace(".", "")) for gpu in gpus if gpu.capability}
    if library is None or not numbers:
        return unknown("NCCL's library, or the GPUs' compute capability, is not known")
    without = sorted(number for number in numbers if not _has_code(library, number))
    if not without:
        return ok(f"{library.name} has code for every GPU")
    number = without[0]
    capability = f"{number // 10}.{number % 10}"
    return fails(
        f"{library.name} has no code for compute capability {capability} (sm_{number}): it was "
        f"built for {_architectures(library)}",
        cause="the library was built for other GPUs; the first collective would fail with `no "
        "kernel image is available for execution on the device`",
        fix=f"make -j src.build NVCC_GENCODE='-gencode=arch=compute_{number},code=sm_{number}' in "
        f"NCCL's sources, then {OWN_NCCL}=…/build/lib/libnccl.so.2",
    )


def _has_code(library: Library, number: int) -> bool:
    return any(
        compiles_for(code, number) if code.ptx else runs_natively(code, number)
        for container in library.containers
        for code in container
    )


def _architectures(library: Library) -> str:
    return ", ".join(sorted({str(code) for container in library.containers for code in container}))


def mtu(situation: Situation) -> CheckResult:
    """The interfaces that the nodes name must have the same MTU, or large messages are lost."""
    if not spans(situation):
        return not_applicable(ONE_MACHINE)
    mtus = {
        f"{interface} on {node.name}": size
        for node in situation.nodes
        for interface, size in _mtus(node.machine, _named(node.machine.get("environment")))
    }
    if situation.machine and situation.own_limits and len(situation.nodes) < 2:  # noqa: PLR2004
        own = {"mtus": situation.machine.mtus}
        named = _named(situation.environment)
        mtus |= {f"{name} on this machine": size for name, size in _mtus(own, named)}
    if not mtus:
        return unknown("the MTUs of the nodes' interfaces are not known")
    sizes = ", ".join(f"{size} of {place}" for place, size in mtus.items())
    largest = max(mtus.values())
    ping = f"ping -M do -s {largest - HEADERS} ADDRESS"
    if len(set(mtus.values())) > 1:
        return fails(
            f"the interfaces differ in MTU: {sizes}",
            cause="only one node was set up for jumbo frames: small messages arrive, but large "
            "ones do not, so the first collective hangs",
            fix=f"sudo ip link set dev INTERFACE mtu {largest} on each node, then {ping} from each "
            "to the other",
        )
    return ok(f"{sizes}; to test the way between them: {ping}")


def _named(environment: object) -> set[str]:
    """Return the interfaces that the variables name exactly."""
    if not isinstance(environment, Mapping):
        return set()
    values = (str(environment.get(name) or "") for name in (NCCL, GLOO))
    return {
        part.removeprefix("=").partition(":")[0]
        for value in values
        if not value.startswith("^")
        for part in value.split(",")
        if part
    }


def _mtus(machine: Mapping[str, object], named: set[str]) -> list[tuple[str, int]]:
    mtus = machine.get("mtus")
    if not isinstance(mtus, Mapping):
        return []
    return sorted(
        (name, size) for name, size in mtus.items() if name in named and isinstance(size, int)
    )


def ray_memory(situation: Situation) -> CheckResult:
    """Ray must not kill workers because the GPU's share fills the machine's memory."""
    if situation.flag("distributed_executor_backend") != "ray":
        return not_applicable("Ray does not start the workers")
    if situation.machine is None:
        return unknown(ELSEWHERE)
    if not any(gpu.unified for gpu in situation.machine.devices):
        return not_applicable("the GPU has its own memory")
    refresh = situation.environment.get(REFRESH, "").strip()
    threshold = _fraction(situation.environment.get(THRESHOLD, ""))
    share = flags.share(situation) or USUAL_THRESHOLD
    if refresh == "0":
        return ok(f"{REFRESH}=0: Ray does not watch the memory")
    if threshold > USUAL_THRESHOLD:
        return ok(f"{THRESHOLD}={threshold:g}")
    return fails(
        f"Ray kills workers if the memory is {threshold:.0%} full, and vLLM uses {share:.0%} "
        "of the memory that GPU and machine share",
        cause="Ray's default counts the GPU's share as used; it would report `Task was killed due "
        "to the node running low on memory`",
        fix=f'{REFRESH} = "0" in [env] of the lane, and set before `ray start` on every node; or '
        f'{THRESHOLD} = "0.99"',
    )


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return USUAL_THRESHOLD
