"""Rules by name: facts of a machine and its lane that support or contradict a signature.

A rule returns the sentence to show, or None if the facts do not support it.
"""

from __future__ import annotations

import functools
import re
import tomllib
from typing import TYPE_CHECKING

from pytest_vllm_gates import data
from pytest_vllm_gates.environment.types import DECIDING
from pytest_vllm_gates.preflight import gpu, versions
from pytest_vllm_gates.preflight.types import CheckState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.preflight.types import Situation

    Captures = Mapping[str, str]
    Rule = Callable[[Situation, Captures], str | None]

GIB = 2**30
A_TENTH = 0.1
MODULES = data.FOLDER / "modules.toml"
ENOUGH_FILES = 65536
YES = ("1", "true", "yes", "on")


def _architecture_known(situation: Situation, captures: Captures) -> str | None:
    name = captures.get("architecture", "")
    if name in situation.bundle.architectures:
        return f"vLLM {situation.bundle.vllm} implements {name}"
    return None


def _architecture_unknown(situation: Situation, captures: Captures) -> str | None:
    name, architectures = captures.get("architecture", ""), situation.bundle.architectures
    if name and architectures and name not in architectures and not situation.bundle.plugins:
        return f"vLLM {situation.bundle.vllm} does not implement {name}"
    return None


def _architecture_removed(situation: Situation, captures: Captures) -> str | None:
    name = captures.get("architecture", "")
    last = situation.bundle.gone.get(name)
    return f"{name} was last in vLLM {last}" if last else None


def _model_type_known(situation: Situation, captures: Captures) -> str | None:
    name = captures.get("model_type", "")
    return f"the lane knows {name}" if name in situation.bundle.model_types else None


def _model_type_unknown(situation: Situation, captures: Captures) -> str | None:
    name, model_types = captures.get("model_type", ""), situation.bundle.model_types
    if not name or not model_types or name in model_types:
        return None
    return f"transformers {situation.bundle.versions.get('transformers')} does not know {name}"


def _capability_below_8(situation: Situation, captures: Captures) -> str | None:
    del captures
    for device in situation.machine.devices if situation.machine else ():
        if device.capability and int(device.capability.partition(".")[0]) < 8:  # noqa: PLR2004
            return f"the {device.name} has compute capability {device.capability}"
    return None


def _from_check(
    check: Callable[[Situation], object], state: CheckState
) -> Callable[[Situation, Captures], str | None]:
    """Return a rule with the message of a preflight check, if its result is `state`."""

    def rule(situation: Situation, captures: Captures) -> str | None:
        del captures
        result = check(situation)
        message: str = getattr(result, "what", "")
        return message if getattr(result, "state", None) is state else None

    return rule


def _container(situation: Situation, captures: Captures) -> str | None:
    del captures
    if situation.machine and situation.machine.container:
        return f"it runs in {situation.machine.container}"
    return None


def _cpu_lane(situation: Situation, captures: Captures) -> str | None:
    del captures
    return "the lane's vLLM is a CPU build" if situation.bundle.device == "cpu" else None


def _few_open_files(situation: Situation, captures: Captures) -> str | None:
    del captures
    limit = situation.machine.limits.open_files if situation.machine else None
    if limit and 0 <= limit[0] < ENOUGH_FILES:
        return f"a process may open {limit[0]} files here (hard limit {limit[1]})"
    return None


def _gpu_memory_free(situation: Situation, captures: Captures) -> str | None:
    del captures
    devices = situation.machine.devices if situation.machine else ()
    shares = [
        device.free_bytes / device.memory_bytes
        for device in devices
        if device.free_bytes is not None and device.memory_bytes
    ]
    if not shares or len(shares) < len(devices) or min(shares) < 1 - A_TENTH:
        return None
    return f"{min(shares):.0%} of the GPU's memory is free now"


def _gpu_memory_taken(situation: Situation, captures: Captures) -> str | None:
    del captures
    for device in situation.machine.devices if situation.machine else ():
        if device.free_bytes is None or not device.memory_bytes:
            continue
        used_bytes = device.memory_bytes - device.free_bytes
        if used_bytes > A_TENTH * device.memory_bytes:
            return f"{used_bytes / GIB:.1f} GiB of GPU {device.index}'s memory is taken now"
    return None


def _little_host_memory(situation: Situation, captures: Captures) -> str | None:
    del captures
    machine = situation.machine
    if machine is None or machine.available_bytes is None or not machine.memory_bytes:
        return None
    if machine.available_bytes >= A_TENTH * machine.memory_bytes:
        return None
    return (
        f"{machine.available_bytes / GIB:.1f} GiB of the machine's "
        f"{machine.memory_bytes / GIB:.1f} GiB are available now"
    )


def _no_gpu(situation: Situation, captures: Captures) -> str | None:
    del captures
    if situation.machine is None or situation.machine.gpus or situation.machine.devices:
        return None
    problem = situation.machine.driver.problem
    return "no NVIDIA GPU answers" + (f": {problem}" if problem else "")


def _one_gpu(situation: Situation, captures: Captures) -> str | None:
    del captures
    is_single = situation.machine is not None and len(situation.machine.devices) == 1
    return "one GPU answers" if is_single else None


def _no_hub_token(situation: Situation, captures: Captures) -> str | None:
    del captures
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
    if not situation.environment or any(situation.environment.get(name) for name in names):
        return None
    return "HF_TOKEN is not set"


def _hub_offline(situation: Situation, captures: Captures) -> str | None:
    del captures
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if situation.environment.get(name, "").lower() in YES:
            return f"{name} is set"
    return None


def _module(captures: Captures) -> str:
    return captures.get("package", "").strip("'").partition(".")[0]


def _distribution(captures: Captures) -> str:
    """Return the distribution that a captured module most likely belongs to."""
    module = _module(captures)
    return _distributions().get(module) or re.sub(r"[-_.]+", "-", module).lower()


@functools.cache
def _distributions() -> Mapping[str, str]:
    """Return the distributions that are not named as their modules, by the module."""
    return tomllib.loads(MODULES.read_text(encoding="utf-8"))


def _package_absent(situation: Situation, captures: Captures) -> str | None:
    name, installed = _distribution(captures), situation.bundle.versions
    if not name or any(package == name or package.startswith(f"{name}-") for package in installed):
        return None
    module = _module(captures)
    of = f", which has the module {module}" if module in _distributions() else ""
    return f"no package of the lane is named {name}{of}" if installed else None


def _package_fits(situation: Situation, captures: Captures) -> str | None:
    # The requirements of other packages, and whether they are met, are not known.
    if _distribution(captures) not in DECIDING:
        return None
    return TABLE["requirements_met"](situation, captures)


def _sm_12x(situation: Situation, captures: Captures) -> str | None:
    del captures
    for device in situation.machine.devices if situation.machine else ():
        if (device.capability or "").startswith("12."):
            return f"the {device.name} has compute capability {device.capability}"
    return None


def _spark(situation: Situation, captures: Captures) -> str | None:
    del captures
    for device in situation.machine.devices if situation.machine else ():
        if "GB10" in device.name or device.capability == "12.1":
            return f"the {device.name} belongs to a DGX Spark"
    return None


def _small_shared_memory(situation: Situation, captures: Captures) -> str | None:
    del captures
    size = situation.machine.limits.shared_memory_bytes if situation.machine else None
    return f"{size / 2**20:.0f} MiB of shared memory" if size is not None and size < GIB else None


def _unified_memory(situation: Situation, captures: Captures) -> str | None:
    del captures
    devices = situation.machine.devices if situation.machine else ()
    unified = next((device for device in devices if device.unified), None)
    return f"the {unified.name} shares the machine's memory" if unified else None


TABLE: Mapping[str, Rule] = {
    "architecture_known": _architecture_known,
    "architecture_removed": _architecture_removed,
    "architecture_unknown": _architecture_unknown,
    "capability_below_8": _capability_below_8,
    "capability_in_wheel": _from_check(gpu.compute_capability, CheckState.OK),
    "capability_not_in_wheel": _from_check(gpu.compute_capability, CheckState.FAILS),
    "container": _container,
    "cpu_lane": _cpu_lane,
    "driver_fits": _from_check(gpu.driver, CheckState.OK),
    "driver_too_old": _from_check(gpu.driver, CheckState.FAILS),
    "few_open_files": _few_open_files,
    "gpu_memory_free": _gpu_memory_free,
    "gpu_memory_taken": _gpu_memory_taken,
    "hub_offline": _hub_offline,
    "little_host_memory": _little_host_memory,
    "model_type_known": _model_type_known,
    "model_type_unknown": _model_type_unknown,
    "no_gpu": _no_gpu,
    "no_hub_token": _no_hub_token,
    "one_gpu": _one_gpu,
    "package_absent": _package_absent,
    "package_fits": _package_fits,
    "packages_disagree": _from_check(versions.versions, CheckState.FAILS),
    "requirements_met": _from_check(versions.versions, CheckState.OK),
    "sm_12x": _sm_12x,
    "spark": _spark,
    "small_shared_memory": _small_shared_memory,
    "unified_memory": _unified_memory,
}


def statements(
    names: tuple[str, ...], situation: Situation | None, captures: Captures
) -> list[str]:
    """Return the sentences of the rules that this machine meets; none if it is unknown."""
    if situation is None:
        return []
    results = (TABLE[name](situation, captures) for name in names)
    return [statement for statement in results if statement]
