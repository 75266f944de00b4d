"""The record of a kept server: one that a run left up for the next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.redaction.redactor import names_a_secret
from pytest_vllm_gates.server.types import BootTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT: Literal["pytest-vllm-gates/kept-server"] = "pytest-vllm-gates/kept-server"
VERSION: Literal[1] = 1
# What of a fingerprint may be told with its values; the others' are hashes.
SHOWN_WITH_VALUES = re.compile(r"flag |package |plugin$|lane$|checkpoint$")
NAMES_TOLD = 3
MINUTE_S = 60


class ProcessId(toml.Record):
    """One process: ids are given again, and with its start it is this one."""

    pid: int
    started: int
    """Clock ticks since the machine started."""


class Host(toml.Record):
    """Where process ids mean something: a machine since it was started, and a container of it."""

    name: str
    boot: str
    pids: str


class KeptRecord(toml.Record):
    """What a later run has to know of a kept server. Its key is in a file of its own."""

    format: Literal["pytest-vllm-gates/kept-server"] = FORMAT
    version: Literal[1] = VERSION
    name: str
    family: str
    lane: str
    checkpoint: str
    base_url: str
    model: str
    """The alias of its boot among the served models."""
    renderer: bool
    server: ProcessId
    """The guard, root of the server's tree."""
    keeper: ProcessId
    tree: tuple[ProcessId, ...]
    """The other processes of the server, as they were when it had booted."""
    host: Host
    booted: str
    """ISO 8601, with its zone."""
    times: dict[str, float | None]
    """`BootTimes` of its boot."""
    evidence: dict[str, Any]
    """What that boot left in evidence."""
    inventory: dict[str, Any]
    """What its lane's environment brings."""
    fingerprint: dict[str, str]

    @property
    def boot_times(self) -> BootTimes:
        """The times of its boot."""
        return BootTimes(**self.times)  # type: ignore[arg-type]


def differences(kept: Mapping[str, str], requested: Mapping[str, str]) -> Iterator[str]:
    """Yield what a kept server's fingerprint has otherwise than that of what is asked for."""
    for name in sorted(kept.keys() | requested.keys()):
        kept_value, requested_value = kept.get(name), requested.get(name)
        if kept_value == requested_value:
            continue
        if SHOWN_WITH_VALUES.match(name) and not names_a_secret(name):
            yield f"{name} (kept {_value_words(kept_value)}, asked {_value_words(requested_value)})"
        elif kept_value is None or requested_value is None:
            yield f"{name} ({'not there' if kept_value is None else 'not any more'})"
        else:
            yield name


def shortened(differing: list[str]) -> str:
    """Return the first of some differences, and how many more there are."""
    left_out = len(differing) - NAMES_TOLD
    return ", ".join(differing[:NAMES_TOLD]) + (f" and {left_out} more" if left_out > 0 else "")


def span(seconds: float) -> str:
    """Return a time as a person says it: 40 s, 12 min, 3 h."""
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    hour_s = 60 * MINUTE_S
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * hour_s else f"{seconds / hour_s:.0f} h"


def _value_words(value: str | None) -> str:
    return "none" if value is None else value or "set"
