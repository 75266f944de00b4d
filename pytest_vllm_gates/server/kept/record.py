"""The record of a kept server: one that a run left up for the next."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction.names import names_a_secret
from pytest_vllm_gates.server.types import BootTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT: Literal["pytest-vllm-gates/kept-server"] = "pytest-vllm-gates/kept-server"
VERSION: Literal[1] = 1
# The parts of a fingerprint whose values may be shown; the other values are hashes.
SHOWN_WITH_VALUES = re.compile(r"flag |package |plugin$|lane$|checkpoint$")
NAMES_TOLD = 3
MOST_SHOWN = 500
MINUTE_S = 60
LOOPBACK = r"^http://127\.0\.0\.1:[0-9]{1,5}/v1$"
MOST_PROCESSES = 4096
LOG_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


class ProcessId(toml.Record):
    """One process: ids are reused, and its start makes it unique."""

    pid: Annotated[int, Field(ge=0, lt=2**31)]
    started: Annotated[int, Field(ge=0, lt=2**63)]
    """Clock ticks since the machine started."""


class Host(toml.Record):
    """The scope of process ids: one start of a machine, and a container on it."""

    name: str
    boot: str
    pids: str


class KeptRecord(toml.Record):
    """The facts about a kept server that a later run needs. Its key is in a separate file."""

    format: Literal["pytest-vllm-gates/kept-server"] = FORMAT
    version: Literal[1] = VERSION
    name: str
    family: str
    lane: str
    checkpoint: str
    base_url: Annotated[str, Field(pattern=LOOPBACK)]
    model: str
    """The alias of its boot among the served models."""
    renderer: bool
    server: ProcessId
    """The guard, root of the server's tree."""
    keeper: ProcessId
    tree: Annotated[tuple[ProcessId, ...], Field(max_length=MOST_PROCESSES)]
    """The other processes of the server, at the end of its boot."""
    listens: bool = False
    """Whether one of them listened on the port then; in a container none of them does."""
    host: Host
    booted: str
    """ISO 8601, with its zone."""
    times: dict[str, float | None]
    """`BootTimes` of its boot."""
    evidence: dict[str, Any]
    """The evidence of that boot."""
    inventory: dict[str, Any]
    """The inventory of its lane's environment."""
    fingerprint: dict[str, str]

    @property
    def boot_times(self) -> BootTimes:
        """The times of its boot; raises `UserError` if they are not those of a boot."""
        try:
            return BootTimes(**self.times)
        except TypeError as error:
            raise UserError(f"its record has no valid boot times: {shown(str(error))}") from error

    @property
    def booted_at(self) -> datetime.datetime:
        """The time of its boot; raises `UserError` if that is not a time with a zone."""
        try:
            at = datetime.datetime.fromisoformat(self.booted)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise UserError(f"its record has no valid boot time: {shown(self.booted)!r}")
        return at

    @property
    def port(self) -> int:
        """The port of the loopback interface at which it answers."""
        return int(self.base_url.rpartition(":")[2].partition("/")[0])

    def log(self, folder: Path) -> Path:
        """Return its log, which is in the server's own folder whatever the record contains."""
        name = Path(str(self.evidence.get("log"))).name
        return folder / (name if LOG_NAME.fullmatch(name) else "server.log")


def differences(kept: Mapping[str, str], requested: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences between a kept server's fingerprint and the requested one."""
    for name in sorted(kept.keys() | requested.keys()):
        kept_value, requested_value = kept.get(name), requested.get(name)
        if kept_value == requested_value:
            continue
        if SHOWN_WITH_VALUES.match(name) and not names_a_secret(name):
            kept_words, requested_words = _value_words(kept_value), _value_words(requested_value)
            yield f"{shown(name)} (kept {kept_words}, requested {requested_words})"
        elif kept_value is None or requested_value is None:
            yield f"{shown(name)} ({'added' if kept_value is None else 'removed'})"
        else:
            yield shown(name)


def shortened(differing: list[str]) -> str:
    """Return the first few differences, and how many more there are."""
    left_out = len(differing) - NAMES_TOLD
    return ", ".join(differing[:NAMES_TOLD]) + (f" and {left_out} more" if left_out > 0 else "")


def span(seconds: float) -> str:
    """Return a time for a person: 40 s, 12 min, 3 h."""
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    hour_s = 60 * MINUTE_S
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * hour_s else f"{seconds / hour_s:.0f} h"


def shown(text: str) -> str:
    """Return a record's text for a terminal: unprintable characters escaped, the end cut."""
    cut = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in cut
    )


def _value_words(value: str | None) -> str:
    return "none" if value is None else shown(value) or "set"
