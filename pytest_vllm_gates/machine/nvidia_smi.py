"""Reads what `nvidia-smi -q -x` tells, where NVML cannot be asked or a machine was recorded."""

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
# The document does not tell the compute capability, another question does.
CAPABILITIES = ("--query-gpu=compute_cap", "--format=csv,noheader")


def ask() -> tuple[NvidiaDriver, tuple[Gpu, ...]]:
    """Return the driver and its GPUs; without them, why there are none."""
    program = shutil.which(NAME)
    if program is None:
        return NvidiaDriver(problem=f"there is no {NAME} on the PATH"), ()
    told = _run(program, "-q", "-x")
    driver, gpus = read(told, _run(program, *CAPABILITIES) if "<gpu " in told else "")
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
        return NvidiaDriver(problem=words[:200] or "it said nothing"), ()
    lines = [line.strip() for line in capabilities.splitlines()]
    driver = NvidiaDriver(
        # The newer names are those of drivers from R560 on, which write both for a while.
        version=_text(log, "driver_version") or _text(log, "kmd_version"),
        cuda=_text(log, "cuda_version") or _text(log, "cuda_umd_version"),
        told_by=NAME,
    )
    gpus = tuple(
        _gpu(index, gpu, lines[index] if index < len(lines) else "")
        for index, gpu in enumerate(log.findall("gpu"))
    )
    return driver, gpus


def _gpu(index: int, gpu: ET.Element, capability: str) -> Gpu:
    total, reserved = (_bytes(gpu, f"fb_memory_usage/{entry}") for entry in ("total", "reserved"))
    mig = _text(gpu, "mig_mode/current_mig")
    refused = gpu.find("fb_memory_usage/total") is not None and total is None
    return Gpu(
        index=index,
        name=_text(gpu, "product_name") or "unknown",
        uuid=_text(gpu, "uuid"),
        memory_bytes=total - (reserved or 0) if total is not None else None,
        free_bytes=_bytes(gpu, "fb_memory_usage/free"),
        unified=refused and mig != "Enabled",
        capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
        mig=mig == "Enabled" if mig else None,
    )


def _text(element: ET.Element, path: str) -> str | None:
    """Return a value; what is not available or not supported is none."""
    text = (element.findtext(path) or "").strip()
    return None if text.strip("[]") in ("", "N/A", "Not Supported", "Unknown Error") else text


def _bytes(element: ET.Element, path: str) -> int | None:
    number, _, unit = (_text(element, path) or "").partition(" ")
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
