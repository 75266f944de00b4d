"""Checks the GPU: it answers, its driver is new enough, it has kernels, the lane expects it."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING

from pytest_vllm_gates import data
from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from pytest_vllm_gates.environment.types import Kernels
    from pytest_vllm_gates.machine.types import Gpu, Machine
    from pytest_vllm_gates.preflight.types import Situation

TABLE = data.FOLDER / "cuda.toml"
# Forward compatibility is for data-centre GPUs; on these GPUs it fails (error 803 or 804).
CONSUMER = re.compile(r"GeForce|TITAN|GTX|Quadro T|RTX [2-5]0[5-9]0", re.IGNORECASE)
BRAIN_FLOATS = 80
ELSEWHERE = "the server runs on a machine that cannot be inspected from here"


def needs_no_gpu(situation: Situation) -> CheckResult | None:
    """Return the result if the lane has no CUDA, or if its device cannot be seen; else None."""
    device = situation.bundle.device
    if device in ("cpu", "rocm"):
        device_words = "on the CPU" if device == "cpu" else "on AMD GPUs, which are not checked"
        return not_applicable(f"this lane serves {device_words}")
    if situation.machine is None:
        return unknown(ELSEWHERE)
    if device is None and not situation.machine.devices:
        return unknown("the device that this lane serves on is not known")
    return None


def answers(situation: Situation) -> CheckResult:
    """A CUDA lane needs a GPU that answers."""
    if check_result := needs_no_gpu(situation):
        return check_result
    machine = _machine(situation)
    if not machine.devices:
        problem = machine.driver.problem or "the driver answers and lists none"
        return fails(
            f"no NVIDIA GPU answers: {problem}",
            cause="the machine has no GPU, its driver is not installed or not loaded, or a "
            "container was started without it; vLLM would fail with `Failed to infer device type`",
            fix="nvidia-smi; in a container: docker run --gpus all …; or name a lane that serves "
            "on the CPU: --lane cpu",
        )
    gpus = visible(situation, machine)
    if not gpus:
        return fails(
            f"CUDA_VISIBLE_DEVICES={situation.environment.get('CUDA_VISIBLE_DEVICES')!r} hides "
            f"every one of this machine's {len(machine.devices)} GPUs",
            cause="the variable names none of them: it lists numbers from 0, or UUIDs",
            fix="unset CUDA_VISIBLE_DEVICES",
        )
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    shared = ", sharing the machine's memory" if any(gpu.unified for gpu in gpus) else ""
    return ok(f"{len(gpus)} of {len(machine.devices)}: {names}{shared}")


def driver(situation: Situation) -> CheckResult:
    """The driver must be of the family of the lane's CUDA, or a package must help it."""
    if check_result := needs_no_gpu(situation):
        return check_result
    machine, cuda = _machine(situation), situation.bundle.torch_cuda
    if cuda is None or machine.driver.version is None:
        missing = "the lane's CUDA" if cuda is None else "the driver's version"
        return unknown(f"{missing} is not known")
    version, toolkit_driver, family = machine.driver.version, _toolkit_driver(cuda), _family(cuda)
    if _at_least(machine.driver.cuda, cuda):
        return ok(f"driver {version} runs CUDA {machine.driver.cuda}, the lane's torch is {cuda}")
    if family is None:
        return unknown(f"the oldest driver for CUDA {cuda} is not in the table")
    if _at_least(version, family):
        limited = (
            f" (the driver of CUDA {cuda} is {toolkit_driver}: an older driver of its family "
            "cannot compile this CUDA's PTX)"
            if toolkit_driver and not _at_least(version, toolkit_driver)
            else ""
        )
        return ok(f"driver {version} is of CUDA {cuda}'s family, from {family} on{limited}")
    return _too_old(situation, machine, version, cuda, family)


def _too_old(
    situation: Situation, machine: Machine, version: str, cuda: str, family: str
) -> CheckResult:
    message = (
        f"driver {version} is too old for the lane's CUDA {cuda}, which requires {family} or newer"
    )
    consumer = next((gpu.name for gpu in machine.devices if CONSUMER.search(gpu.name)), None)
    package = _package(situation, machine)
    if package and not consumer:
        return ok(f"driver {version} is older than {family}, but {package} helps it")
    name = "cuda-compat-" + cuda.replace(".", "-")
    may_help = (
        f"a forward-compatibility package does not help: it does not support a {consumer}"
        if consumer
        else f"or, on data-centre GPUs, install {name} and put its folder on LD_LIBRARY_PATH "
        "(vLLM does with VLLM_ENABLE_CUDA_COMPATIBILITY=1)"
    )
    return fails(
        message,
        cause="the lane was built for a newer CUDA; torch would report `The NVIDIA driver on your "
        "system is too old`, sometimes only as a warning, and then find no device",
        fix=f"install a driver of branch {family.partition('.')[0]} or newer; {may_help}",
    )


def _package(situation: Situation, machine: Machine) -> str | None:
    """Return the folder of a forward-compatibility package that the server will load."""
    environment = situation.environment
    path = environment.get("LD_LIBRARY_PATH", "").split(":")
    for folder in machine.compatibility:
        if folder in (entry.rstrip("/") for entry in path):
            return folder
    if environment.get("VLLM_ENABLE_CUDA_COMPATIBILITY", "").strip().lower() in ("1", "true"):
        override = environment.get("VLLM_CUDA_COMPATIBILITY_PATH")
        folder_name = f"cuda-{situation.bundle.torch_cuda}/"
        return override or next(
            (folder for folder in machine.compatibility if folder_name in folder), None
        )
    return None


def compute_capability(situation: Situation) -> CheckResult:
    """Torch and vLLM's own kernels must be compiled for the GPU."""
    if check_result := needs_no_gpu(situation):
        return check_result
    gpus = visible(situation, _machine(situation))
    gpu_of_capability: dict[str, Gpu] = {gpu.capability: gpu for gpu in gpus if gpu.capability}
    if not gpu_of_capability:
        return unknown("the GPUs do not report their compute capability")
    bundle, served = situation.bundle, []
    for part, kernels in (("torch", bundle.torch_kernels), ("vLLM", bundle.vllm_kernels)):
        if kernels is None:
            continue
        for capability, gpu in sorted(gpu_of_capability.items()):
            kernel_source = runs(_number(capability), kernels)
            if kernel_source is None:
                return _no_kernel(part, gpu, kernels)
            served.append(f"{part} for {capability} {kernel_source}")
    if not served:
        return unknown("the GPUs that this lane's torch and vLLM were compiled for are not known")
    return ok(", ".join(served))


def _no_kernel(part: str, gpu: Gpu, kernels: Kernels) -> CheckResult:
    architectures = ", ".join(f"{number // 10}.{number % 10}" for number in kernels.machine_code)
    needed = _number(gpu.capability or "")
    older = bool(kernels.machine_code) and needed < min(kernels.machine_code)
    return fails(
        f"the lane's {part} has no kernels for the {gpu.name} (compute capability "
        f"{gpu.capability}, sm_{needed}): it was compiled for {architectures}",
        cause=("the GPU is older than anything this build serves" if older else
               "the build is older than the GPU, and has no PTX that its driver could compile")
        + "; the first kernel would fail with `no kernel image is available for execution on the "
        "device`",
        fix=(f"use an older lane, whose {part} still has sm_{needed}, or a newer GPU" if older else
             f"use a lane whose CUDA supports sm_{needed}, or build vLLM on this machine: "
             f"TORCH_CUDA_ARCH_LIST={gpu.capability} pip install --no-binary vllm vllm"),
    )  # fmt: skip


def runs(capability: int, kernels: Kernels) -> str | None:
    """Return how kernels run on a GPU, or None if they do not; 90 means 9.0.

    Machine code runs on its own major version, from its minor version on. PTX runs on all from its
    version on.
    """
    for code in sorted(kernels.machine_code, reverse=True):
        if code // 10 == capability // 10 and code <= capability:
            return "as compiled" if code == capability else f"as sm_{code}"
    if kernels.ptx is None:
        # A list without its PTX excludes only GPUs that are older than all its entries.
        older = kernels.machine_code and capability < min(kernels.machine_code)
        return None if older else "by PTX, if it has any"
    older_ptx = [number for number in kernels.ptx if number <= capability]
    return f"by PTX of {max(older_ptx)}, compiled at the first start" if older_ptx else None


def dtype(situation: Situation) -> CheckResult:
    """If bfloat16 is set, it needs a GPU that supports it."""
    if check_result := needs_no_gpu(situation):
        return check_result
    requested = situation.flag("dtype", "auto")
    if requested != "bfloat16":
        return not_applicable(f"dtype is {requested}")
    visible_gpus = visible(situation, _machine(situation))
    gpus = [gpu for gpu in visible_gpus if gpu.capability]
    if not gpus:
        return unknown("the GPUs do not report their compute capability")
    without = next((gpu for gpu in gpus if _number(gpu.capability or "") < BRAIN_FLOATS), None)
    if without is None:
        return ok("bfloat16 on GPUs that support it")
    return fails(
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0; the "
        f"{without.name} has {without.capability}",
        cause="the flag was written for a newer GPU",
        fix='dtype = "half" in [serve], or "auto", which uses a type that the GPU supports',
    )


def lane_expects(situation: Situation) -> CheckResult:
    """The machine must be as the lane's file expects it."""
    expects = situation.expects
    if expects.driver is expects.cuda is expects.gpu is None:
        return not_applicable("the lane's file has no [expects] for the machine")
    if situation.machine is None:
        return unknown(ELSEWHERE)
    machine, wrong, unseen = situation.machine, [], []
    # A forward-compatibility package brings its own CUDA, whatever the driver reports.
    helped = expects.cuda if _package(situation, machine) else None
    for name, expected, actual, fits in (
        ("driver", expects.driver, machine.driver.version, _at_least),
        ("cuda", expects.cuda, helped or machine.driver.cuda, _at_least),
        ("gpu", expects.gpu, ", ".join(dict.fromkeys(machine.gpus)) or None, _name_contains),
    ):
        if expected is not None and actual is None:
            unseen.append(f"{name} {expected}")
        elif expected is not None and not fits(actual, expected):
            wrong.append(f"{name} {expected}, but this machine has {actual}")
    if wrong:
        return fails(
            f"the lane {situation.lane} expects {'; '.join(wrong)}",
            cause="the lane was made for another machine",
            fix="run on the machine the lane was made for, or change [expects] in its file",
        )
    if unseen:
        return unknown(f"the lane expects {', '.join(unseen)}, but this machine does not report it")
    return ok("the machine is as the lane expects")


def visible(situation: Situation, machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs that the server will see, in its order."""
    visible_devices = situation.environment.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is None:
        return machine.devices
    gpus: list[Gpu] = []
    for name in (part.strip() for part in visible_devices.split(",")):
        # CUDA stops at the first name that it does not know.
        gpu = next(
            (device for device in machine.devices
             if name == str(device.index)
             or (device.uuid and name and device.uuid.startswith(name))),
            None,
        )  # fmt: skip
        if gpu is None:
            if name.startswith("MIG-"):
                return machine.devices
            break
        gpus.append(gpu)
    return tuple(gpus)


def _machine(situation: Situation) -> Machine:
    assert situation.machine is not None  # noqa: S101 - checked by `needs_no_gpu`
    return situation.machine


def _number(capability: str) -> int:
    major, _, minor = capability.partition(".")
    return int(major) * 10 + int(minor)


def _at_least(actual: str | None, minimum: str) -> bool:
    """Return whether one version is at least another; only the places that both have count."""
    if actual is None:
        return False
    have, need = (
        [int(part) for part in re.findall(r"\d+", version)] for version in (actual, minimum)
    )
    places = min(len(have), len(need))
    return have[:places] >= need[:places]


def _name_contains(name: str | None, part: str) -> bool:
    return part.lower() in (name or "").lower()


def _family(cuda: str) -> str | None:
    return _tables()["family"].get(cuda.partition(".")[0])


def _toolkit_driver(cuda: str) -> str | None:
    return _tables()["own"].get(cuda)


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))
