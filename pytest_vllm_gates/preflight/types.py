"""The input of the preflight checks, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.expects import Expects
from pytest_vllm_gates.environment.types import Bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.checkpoints.files import Model
    from pytest_vllm_gates.environment.types import Library
    from pytest_vllm_gates.machine.types import Machine


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    FAILS = "fails"
    UNKNOWN = "unknown"
    """The facts that decide are not known; this never stops a boot."""
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Check:
    """One check: its result, and for a failure the cause and the next step."""

    name: str
    state: CheckState
    what: str
    """One sentence with the figures that decided."""
    cause: str = ""
    fix: str = ""
    """The next command, or the flag to set."""

    def explain(self) -> str:
        """Return the check in readable form."""
        lines = [f"{self.name}: {self.what}"]
        if self.cause:
            lines.append(f"cause: {self.cause}")
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Node:
    """Another machine of a lane over several nodes, from its own inventory."""

    name: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Situation:
    """The input of all checks."""

    lane: str
    machine: Machine | None
    """None if the server runs on a machine that cannot be inspected from here."""
    model: Model
    bundle: Bundle = field(default_factory=Bundle)
    serve: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables of the server's process."""
    expects: Expects = field(default_factory=Expects)
    waived: Mapping[str, str] = field(default_factory=dict)
    """Checks whose failure the lane accepts, with the reason."""
    native: int | None = None
    """The context of a listed checkpoint in the family's file, in tokens."""
    unknown_parser: str | None = None
    parsers_known: bool = True
    known_flags: frozenset[str] = frozenset()
    """The flags of this vLLM; empty if they are not known."""
    nodes: tuple[Node, ...] = ()
    renderer: bool = False
    """Whether only prompts are rendered: no accelerator, no weights."""
    own_address: bool | None = None
    """Whether the machine has the address in VLLM_HOST_IP; None if that is not set."""
    missing_files: Mapping[str, str] = field(default_factory=dict)
    """Variables that name a missing file, with the file."""
    nccl_library: Library | None = None
    """The library that VLLM_NCCL_SO_PATH names, with its code."""
    repairs: tuple[str, ...] | None = ()
    """The repairs of the lane's overlay; None if the server cannot be inspected."""
    thinks: bool | None = False
    """Whether the model streams reasoning; None if its family is not known."""
    own_limits: bool = True
    """Whether the server has the limits of this process, and not its own container's limits."""

    def flag(self, name: str, default: Any = None) -> Any:
        """Return a flag as set, or vLLM's default."""
        value = self.serve.get(name)
        return default if value is None else value


GIB = 2**30


@dataclass(frozen=True)
class CheckResult:
    """The result of a check, without its name."""

    state: CheckState
    what: str
    cause: str = ""
    fix: str = ""


def ok(what: str) -> CheckResult:
    """The check passes."""
    return CheckResult(CheckState.OK, what)


def fails(what: str, *, cause: str, fix: str) -> CheckResult:
    """A boot would fail."""
    return CheckResult(CheckState.FAILS, what, cause, fix)


def unknown(what: str) -> CheckResult:
    """The facts do not decide."""
    return CheckResult(CheckState.UNKNOWN, what)


def not_applicable(what: str) -> CheckResult:
    """There is nothing to check."""
    return CheckResult(CheckState.NOT_APPLICABLE, what)


def gib(size: float) -> str:
    """Return bytes in GiB, as vLLM prints them."""
    return f"{size / GIB:.2f} GiB"
