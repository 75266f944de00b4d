"""Checks that the GPU can run each compiled library's code, or its driver can compile it."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import TYPE_CHECKING

from pytest_vllm_gates.preflight.gpu import TABLE, needs_no_gpu, visible
from pytest_vllm_gates.preflight.types import CheckResult, fails, ok, unknown

if TYPE_CHECKING:
    from pytest_vllm_gates.environment.types import Code, Library
    from pytest_vllm_gates.preflight.types import Situation

# vLLM's own operators: if all of them run by PTX, every server needs it.
OPERATORS = ("vllm/_C", "vllm/_moe_C")
FLASH_ATTENTION = "_vllm_fa2_C"
FIRST_BY_PTX = 90
"""vLLM compiles FlashAttention 2 for "8.0+PTX" (CMakeLists.txt of vllm-project/flash-attention,
FA2_ARCHS): from compute capability 9.0 on it runs by PTX."""
SAYS = "the provided PTX was compiled with an unsupported toolchain"
CHOOSES_IT = (8, 12)
"""Major versions on which vLLM's attention is FlashAttention 2 by default; Hopper has
FlashAttention 3, 10.x has FlashInfer and its own latent attention kernels (vLLM 0.32,
`platforms/cuda.py`, `_get_backend_priorities`). Vision towers use it on all (vllm#25143: GLM-4.5V
on an H100)."""
CHOSEN = "FLASH_ATTN"
TOWERS = ("vision_config", "audio_config")
Cuda = tuple[int, int]


def compiled_kernels(situation: Situation) -> CheckResult:
    """If a GPU runs a library by its PTX, its driver must be able to compile that PTX."""
    if check_result := needs_no_gpu(situation):
        return check_result
    machine = situation.machine
    driver_cuda = _version(machine.driver.cuda) if machine else None
    gpus = visible(situation, machine) if machine else ()
    numbers = sorted({_number(gpu.capability) for gpu in gpus if gpu.capability})
    if driver_cuda is None or not numbers:
        return unknown("the driver's CUDA, or the GPUs' compute capability, is not known")
    driver_cuda = max(driver_cuda, _helped(situation))
    libraries = situation.bundle.libraries
    if not libraries:
        return _by_versions(situation, driver_cuda, numbers)
    others = []
    for library in libraries:
        for number in numbers:
            newer = _only_newer_ptx(library, number, driver_cuda)
            if newer is None:
                continue
            if not _is_used(situation, library, number):
                others.append(f"{library.name} ({newer}, PTX {_words(newer.version)})")
                continue
            return _fails(
                f"{library.name} runs on compute capability {_capability(number)} only by {newer}, "
                f"PTX {_words(newer.version)} of CUDA {_words(_needs(newer))}",
                driver_cuda,
                _needs(newer),
            )
    checked = f"{len(libraries)} libraries have code that the GPU or its driver can use"
    return ok(checked + (f"; these fail if they are used: {', '.join(others)}" if others else ""))


def _is_used(situation: Situation, library: Library, number: int) -> bool:
    """Return whether a server on this GPU uses code that the library has only as PTX."""
    if FLASH_ATTENTION in library.name:
        return _takes_flash_attention(situation, number)
    return library.name.startswith(OPERATORS) and not any(
        not code.ptx and runs_natively(code, number)
        for container in library.containers
        for code in container
    )


def _takes_flash_attention(situation: Situation, number: int) -> bool:
    config = situation.model.config or {}
    if any(config.get(tower) for tower in TOWERS):
        return True
    text_config = config.get("text_config")
    places = (config, text_config if isinstance(text_config, dict) else {})
    latent = any(place.get("kv_lora_rank") for place in places)
    chosen = situation.flag("attention_backend", CHOSEN)
    return number // 10 in CHOOSES_IT and not latent and chosen == CHOSEN


def _by_versions(situation: Situation, driver_cuda: Cuda, numbers: list[int]) -> CheckResult:
    """Judge a bundle that is not installed, or cannot be inspected, by its versions."""
    made_with = _version(situation.bundle.torch_cuda)
    if made_with is None or situation.bundle.locations or not situation.bundle.vllm:
        return unknown("the compiled libraries of this lane cannot be inspected")
    by_ptx = [
        number
        for number in numbers
        if number >= FIRST_BY_PTX and _takes_flash_attention(situation, number)
    ]
    if not by_ptx or driver_cuda >= made_with:
        return ok(f"judged by the lock's versions: CUDA {_words(made_with)}, not installed yet")
    return _fails(
        f"vLLM's wheels run {FLASH_ATTENTION} on compute capability {_capability(by_ptx[0])} by "
        f"PTX for 8.0, and the lock's CUDA is {_words(made_with)} (not installed yet)",
        driver_cuda,
        made_with,
    )


def _fails(what: str, driver_cuda: Cuda, needed: Cuda) -> CheckResult:
    own = _tables()["own"].get(_words(needed))
    newer_driver = f"a driver of {own} or newer" if own else f"a driver of CUDA {_words(needed)}"
    return fails(
        f"{what}, but the driver compiles PTX only up to CUDA {_words(driver_cuda)}",
        cause="the library was built with a newer CUDA than the driver's: it loads, but its first "
        f"kernel fails with `{SAYS}`",
        fix=f"install {newer_driver}; or, on data-centre and RTX PRO GPUs, cuda-compat-"
        f"{needed[0]}-{needed[1]} with its folder on LD_LIBRARY_PATH; or use a lane whose vLLM was "
        f"built with CUDA {_words(driver_cuda)}",
    )


def _only_newer_ptx(library: Library, number: int, driver_cuda: Cuda) -> Code | None:
    """Return PTX that a container needs but the driver cannot compile; None if there is none."""
    for container in library.containers:
        if any(not code.ptx and runs_natively(code, number) for code in container):
            continue
        usable = [code for code in container if code.ptx and compiles_for(code, number)]
        if usable and all(_needs(code) > driver_cuda for code in usable):
            return min(usable, key=lambda code: code.version)
    return None


def runs_natively(code: Code, number: int) -> bool:
    """Return whether machine code runs on a GPU: on 12.1 `sm_120` does, `sm_120a` does not."""
    if code.suffix == "a":
        return code.arch == number
    return code.arch // 10 == number // 10 and code.arch <= number


def compiles_for(code: Code, number: int) -> bool:
    """Return whether PTX can be compiled for a GPU, by a driver of any version."""
    if code.suffix == "a":
        return code.arch == number
    if code.suffix == "f":
        return code.arch // 10 == number // 10 and code.arch <= number
    return code.arch <= number


def _helped(situation: Situation) -> Cuda:
    """Return the CUDA of a forward-compatibility package on the library path, or (0, 0)."""
    path = situation.environment.get("LD_LIBRARY_PATH", "").split(":")
    folders = situation.machine.compatibility if situation.machine else ()
    versions = [
        _version(folder.partition("cuda-")[2].partition("/")[0])
        for folder in folders
        if folder in (entry.rstrip("/") for entry in path)
    ]
    return max((version for version in versions if version), default=(0, 0))


def _needs(code: Code) -> Cuda:
    """Return the CUDA whose driver compiles this PTX; (0, 0) if the table lacks it."""
    return _version(_tables()["ptx"].get(_words(code.version))) or (0, 0)


def _version(text: str | None) -> Cuda | None:
    major, _, minor = (text or "").partition(".")
    minor = minor.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _words(version: Cuda) -> str:
    return f"{version[0]}.{version[1]}"


def _number(capability: str) -> int:
    major, _, minor = capability.partition(".")
    return int(major) * 10 + int(minor)


def _capability(number: int) -> str:
    return f"{number // 10}.{number % 10}"


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))
