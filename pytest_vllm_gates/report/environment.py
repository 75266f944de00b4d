"""The machine, lanes' environments and bundle differences, as JSON and as text for people."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.environment.types import MAIN_PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.environment.types import Bundle
    from pytest_vllm_gates.lanes.describe import BundleDiff
    from pytest_vllm_gates.machine.types import Gpu, Machine

GIB = 2**30


def machine_document(machine: Machine) -> dict[str, Any]:
    """Return the machine as JSON."""
    return dataclasses.asdict(machine)


def bundle_document(bundle: Bundle) -> dict[str, Any]:
    """Return the contents of a lane's environment as JSON, without the long lists of names."""
    return {
        "versions": {
            name: bundle.versions[name] for name in MAIN_PACKAGES if name in bundle.versions
        },
        "locations": dict(bundle.locations),
        "device": bundle.device,
        "torch_cuda": bundle.torch_cuda,
        "torch_kernels": bundle.torch_kernels and dataclasses.asdict(bundle.torch_kernels),
        "vllm_kernels": bundle.vllm_kernels and dataclasses.asdict(bundle.vllm_kernels),
        "nccl": bundle.nccl,
        "plugins": list(bundle.plugins),
    }


def machine_lines(machine: Machine) -> Iterator[str]:
    """Yield the machine in readable lines."""
    limits = machine.limits
    yield _line("system", f"{machine.os}, {machine.container or 'bare metal'}")
    yield _line("processor", f"{machine.cpu}, {machine.cores} cores")
    memory = f"{_gib(machine.memory_bytes)}, {_gib(machine.available_bytes)} available"
    yield _line("memory", memory)
    yield _line("driver", _driver(machine))
    for gpu in machine.devices:
        yield _line(f"GPU {gpu.index}", ", ".join(_gpu(gpu)))
    for index, row in enumerate(machine.topology):
        yield _line(f"GPU {index} to", "  ".join(row))
    for folder in machine.compatibility:
        yield _line("CUDA package", folder)
    if limits.open_files:
        yield _line("open files", f"{limits.open_files[0]}, at most {limits.open_files[1]}")
    yield _line(
        "shared memory",
        f"{_gib(limits.shared_memory_bytes)}, {_gib(limits.shared_memory_free_bytes)} free",
    )
    for name, value in machine.environment.items():
        yield _line("environment", f"{name}={value}")


def bundle_lines(lane: str, bundle: Bundle) -> Iterator[str]:
    """Yield the contents of a lane's environment in readable lines."""
    yield _line("lane", f"{lane}, serves on {bundle.device or 'unknown'}")
    for name in MAIN_PACKAGES:
        if name in bundle.versions:
            place = bundle.locations.get(name, "")
            yield _line(name, f"{bundle.versions[name]}  {place}".rstrip())
    if bundle.torch_cuda:
        yield _line("CUDA of torch", bundle.torch_cuda)
    for part, kernels in (("torch", bundle.torch_kernels), ("vLLM", bundle.vllm_kernels)):
        if kernels:
            listed = [f"sm_{number}" for number in kernels.machine_code]
            listed += [f"compute_{number}" for number in kernels.ptx or ()]
            yield _line(f"{part} kernels", " ".join(listed))


def _driver(machine: Machine) -> str:
    driver = machine.driver
    if driver.problem:
        return f"none answers ({driver.problem})"
    return f"{driver.version or 'unknown'}, CUDA {driver.cuda or 'unknown'} (by {driver.told_by})"


def _gpu(gpu: Gpu) -> Iterator[str]:
    yield gpu.name
    if gpu.unified:
        yield "unified memory: the GPU shares the machine's memory"
    else:
        yield f"{_gib(gpu.memory_bytes)}, {_gib(gpu.free_bytes)} free"
    yield f"compute capability {gpu.capability or 'unknown'}"
    if gpu.mig:
        yield "MIG"
    if gpu.nvlinks:
        yield f"{gpu.nvlinks} NVLinks"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.1f} GiB"


def _line(name: str, value: str) -> str:
    return f"{name:<18} {value}"


DEFAULT = "*"


@dataclass(frozen=True)
class LaneRow:
    """One lane, and the known facts of its environment."""

    name: str
    form: str
    title: str
    default: bool
    """Whether it is the default lane on this machine."""
    python: Path | None = None
    """The interpreter of the environment; None if none exists here."""
    versions: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def shown(self) -> dict[str, str]:
        """The versions that decide how it serves."""
        return {name: self.versions[name] for name in MAIN_PACKAGES if name in self.versions}

    @property
    def state(self) -> str:
        """Whether the environment exists."""
        if self.problem:
            return "faulty"
        if self.form in ("command", "base_url"):
            return "runs elsewhere"
        return "made" if self.python else "not made"


def lane_document(row: LaneRow) -> dict[str, Any]:
    """Return a lane as JSON."""
    return {
        "lane": row.name,
        "form": row.form or None,
        "title": row.title or None,
        "default": row.default,
        "state": row.state,
        "python": str(row.python) if row.python else None,
        "versions": row.shown,
        "problem": row.problem or None,
    }


def lane_lines(rows: Sequence[LaneRow]) -> Iterator[str]:
    """Yield two lines for each lane: its description and its contents."""
    names = max((len(row.name) for row in rows), default=0)
    for row in rows:
        mark = DEFAULT if row.default else " "
        head = f"{mark} {row.name:<{names}}  {row.form or '?':<8}  {row.state:<14}"
        yield f"{head}  {row.title or row.problem}".rstrip()
        indent = " " * (names + 4)
        if row.title and row.problem:
            yield f"{indent}{row.problem}"
        if row.shown:
            pinned = "" if row.python else "its lock pins: "
            versions = ", ".join(f"{name} {version}" for name, version in row.shown.items())
            yield f"{indent}{pinned}{versions}"
        if row.python:
            yield f"{indent}{row.python}"
    if any(row.default for row in rows):
        yield f"{DEFAULT} the default lane on this machine"


NOT_THERE = "-"
MOST = 8
"""The most changes of one axis that are listed; the document has all of them."""
WIDEST = 60
CHECKSUM = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def diff_document(diff: BundleDiff) -> dict[str, Any]:
    """Return the difference as JSON, as `bundle` in `verdict.json`."""
    return {
        "axes": list(diff.axes),
        "changed": [dataclasses.asdict(change) for change in diff.changed],
        "same": list(diff.same),
        "unknown": list(diff.unknown),
        "why": list(diff.why),
        "warning": diff.warning,
    }


def diff_lines(diff: BundleDiff) -> Iterator[str]:
    """Yield one line for each change, then the equal axes and the unknown ones."""
    rows = [("", "", diff.ours, diff.theirs)]
    for axis in diff.axes:
        changes = [change for change in diff.changed if change.axis == axis]
        listed = changes[:MOST] if len(changes) > MOST + 1 else changes
        rows += [
            ("" if number else axis, change.name, _shown(change.ours), _shown(change.theirs))
            for number, change in enumerate(listed)
        ]
        if hidden := len(changes) - len(listed):
            rows.append(("", f"… and {hidden} more", "", ""))
    if diff.changed:
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        for row in rows:
            yield "  ".join(
                value.ljust(width) for value, width in zip(row, widths, strict=True)
            ).rstrip()
    else:
        known = " that is known" if diff.unknown else ""
        yield f"nothing{known} differs between {diff.ours} and {diff.theirs}"
    if diff.same:
        yield f"same: {', '.join(diff.same)}"
    if diff.unknown:
        yield f"not known: {', '.join(diff.unknown)}"
        yield from (f"  {reason}" for reason in diff.why)
    if diff.warning:
        yield f"warning: {diff.warning}"


def _shown(value: str | None) -> str:
    if value is None:
        return NOT_THERE
    short = CHECKSUM.sub(r"\1", value)
    return short if len(short) <= WIDEST else f"{short[: WIDEST - 1]}…"
