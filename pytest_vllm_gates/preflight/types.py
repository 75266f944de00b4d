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
    """What a check came to."""

    OK = "ok"
    FAILS = "fails"
    UNKNOWN = "unknown"
    """What it takes to tell is not known; this never holds a boot up."""
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Check:
    """One check: what it came to, and where it fails the cause and the next step."""

    name: str
    state: CheckState
    what: str
    """One sentence with the figures that decided."""
    cause: str = ""
    fix: str = ""
    """The next command, or the flag to set."""

    def explain(self) -> str:
        """Return the check as a person reads it."""
        lines = [f"{self.name}: {self.what}"]
        if self.cause:
            lines.append(f"cause: {self.cause}")
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Node:
    """Another machine of a lane that spans several, as its own inventory tells of it."""

    name: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Situation:
    """Everything the checks look at."""

    lane: str
    machine: Machine | None
    """None where the server runs on a machine that cannot be looked at from here."""
    model: Model
    bundle: Bundle = field(default_factory=Bundle)
    serve: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the server's process will find in its environment."""
    expects: Expects = field(default_factory=Expects)
    waived: Mapping[str, str] = field(default_factory=dict)
    """Checks whose failure the lane accepts, with the reason."""
    native: int | None = None
    """Tokens that a listed checkpoint was made for by the family's file."""
    unknown_parser: str | None = None
    parsers_known: bool = True
    known_flags: frozenset[str] = frozenset()
    """The flags that this vLLM takes; empty where they are not known."""
    nodes: tuple[Node, ...] = ()
    renderer: bool = False
    """Whether only prompts are rendered: no accelerator, no weights."""
    own_address: bool | None = None
    """Whether the machine has the address in VLLM_HOST_IP; None where there is none to look for."""
    missing_files: Mapping[str, str] = field(default_factory=dict)
    """Variables that name a file, with the file, where it is not there."""
    nccl_library: Library | None = None
    """The library that VLLM_NCCL_SO_PATH names, with its code."""
    repairs: tuple[str, ...] | None = ()
    """The repairs of the lane's overlay; None where the server is not ours to see into."""
    thinks: bool | None = False
    """Whether the model has a reasoning to stream; None where no family says so."""
    own_limits: bool = True
    """Whether the limits of this process are the server's, and not those of a container it gets."""

    def flag(self, name: str, default: Any = None) -> Any:
        """Return a flag as set, or vLLM's default."""
        value = self.serve.get(name)
        return default if value is None else value


GIB = 2**30


@dataclass(frozen=True)
class CheckResult:
    """What a check says, before it has its name."""

    state: CheckState
    what: str
    cause: str = ""
    fix: str = ""


def ok(what: str) -> CheckResult:
    """All is well."""
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
