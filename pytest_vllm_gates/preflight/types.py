"""What is known before a boot, and what a check says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.lane import Expects
from pytest_vllm_gates.facts.bundle import Bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.machine.types import Machine


class State(StrEnum):
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
    state: State
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
class Model:
    """A checkpoint as its files tell of it, weights unread."""

    source: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its `config.json`; empty where there is none to be read, and then `problem` says why."""
    problem: str = ""
    unseen: str = ""
    """Why its files cannot be read from here, where the server may yet read them."""
    weights_problem: str = ""

    @property
    def text(self) -> Mapping[str, Any]:
        """The part of the config that is about text; the whole, where it is about nothing else."""
        for name in ("text_config", "llm_config"):
            part = self.config.get(name)
            if isinstance(part, dict):
                return part
        return self.config

    def whole(self, *names: str) -> int | None:
        """Return the first of these whole numbers that the text part has."""
        for name in names:
            value = self.text.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def quantization(self) -> Mapping[str, Any] | None:
        """How its weights are quantised, wherever the config says so."""
        for part in (self.config, self.text):
            for name in ("quantization_config", "compression_config"):
                found = part.get(name)
                if isinstance(found, dict):
                    return found
        return None


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
    unknown_parser: str | None = None
    parsers_known: bool = True
    nodes: tuple[Node, ...] = ()
    renderer: bool = False
    """Whether only prompts are rendered: no accelerator, no weights."""
    own_address: bool | None = None
    """Whether the machine has the address in VLLM_HOST_IP; None where there is none to look for."""
    missing_files: Mapping[str, str] = field(default_factory=dict)
    """Variables that name a file, with the file, where it is not there."""
    own_limits: bool = True
    """Whether the limits of this process are the server's, and not those of a container it gets."""

    def flag(self, name: str, default: Any = None) -> Any:
        """Return a flag as set, or vLLM's default."""
        value = self.serve.get(name)
        return default if value is None else value
