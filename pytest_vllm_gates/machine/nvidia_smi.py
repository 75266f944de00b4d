"""Reads `nvidia-smi -q -x`, for machines without NVML and recorded ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree as ET

from pytest_vllm_gates.machine.types import Gpu, NvidiaDriver

NAME = "nvidia-smi"
TIMEOUT_S = 15.0
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Some drivers write a warning before the document.
DOCUMENT = re.compile(r"<nvidia_smi_log>.*</nvidia_smi_log>", re.DOTALL)
# The document has no compute capability; this query returns it.
CAPABILITIES = ("--query-gpu=compute_cap", "--format=csv,noheader")


def inspect_gpus() -> tuple[NvidiaDriver, tuple[Gpu, ...]]:
    """Return the driver and its GPUs; without them, why there are none."""
    program = shutil.which(NAME)
    if program is None:
        return NvidiaDriver(problem=f"{NAME} is not on the PATH"), ()
    document = _run(program, "-q", "-x")
    driver, gpus = read(document, _run(program, *CAPABILITIES) if "<gpu " in document else "")
    if driver.problem:
        return NvidiaDriver(problem=f"{NAME}: {driver.problem}"), ()
    return driver, gpus


def read(document: str, capabilities: str = "") -> tuple[NvidiaDriver, tuple[Gpu, ...]]:
    """Return the driver and the GPUs of a document, with their capabilities line by line."""
    match = DOCUMENT.search(document)
    try:
        log = ET.fromstring(match[0]) if match else None  # noqa: S314 - the driver's own tool's
    except ET.ParseError:
        log = None
    if log is None:
        words = " ".join(document.split())
        return NvidiaDriver(problem=words[:200] or "it printed nothing"), ()
    lines = [line.strip() for line in capabilities.splitlines()]
    driver = NvidiaDriver(
        # The newer names are those of drivers from R560 on, which write both for a while.
        version=_value(log, "driver_version") or _value(log, "kmd_version"),
        cuda=_value(log, "cuda_version") or _value(log, "cuda_umd_version"),
        told_by=NAME,
    )
    gpus = tuple(
        _gpu(index, gpu, lines[index] if index < len(lines) else "")
        for index, gpu in enumerate(log.findall("gpu"))
    )
    return driver, gpus


def _gpu(index: int, gpu: ET.Element, capability: str) -> Gpu:
    total, reserved = (_bytes(gpu, f"fb_memory_usage/{part}") for part in ("total", "reserved"))
    mig = _value(gpu, "mig_mode/current_mig")
    refused = gpu.find("fb_memory_usage/total") is not None and total is None
    return Gpu(
        index=index,
        name=_value(gpu, "product_name") or "unknown",
        uuid=_value(gpu, "uuid"),
        memory_bytes=total - (reserved or 0) if total is not None else None,
        free_bytes=_bytes(gpu, "fb_memory_usage/free"),
        unified=refused and mig != "Enabled",
        capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
        mig=mig == "Enabled" if mig else None,
    )


def _value(element: ET.Element, path: str) -> str | None:
    """Return a value; None where it is not available or not supported."""
    value = (element.findtext(path) or "").strip()
    return None if value.strip("[]") in ("", "N/A", "Not Supported", "Unknown Error") else value


def _bytes(element: ET.Element, path: str) -> int | None:
    number, _, unit = (_value(element, path) or "").partition(" ")
    return int(number) * UNITS[unit] if number.isdecimal() and unit in UNITS else None


def _run(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr
