"""What a server did about requests no client should send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.facts.said import Said
    from pytest_vllm_gates.robustness.types import Misuse


@dataclass(frozen=True)
class Reaction:
    """What came of one wrong request."""

    case: Misuse
    request: dict[str, Any] | None
    status: int | None
    """None where no answer came."""
    message: str | None
    """The error's message as a client reads it; None where there is none."""
    completion: bool
    """Whether what came is a completion."""
    text: str
    """The beginning of what came, or what happened to the connection."""
    seconds: float


@dataclass(frozen=True)
class Checkup:
    """Whether the server still answered, after these wrong requests."""

    after: tuple[str, ...]
    said: Said


@dataclass(frozen=True)
class Treatment:
    """Everything that was done to a server, and what came of it."""

    healthy: Said
    """What is said before anything went wrong."""
    reactions: tuple[Reaction, ...]
    checkups: tuple[Checkup, ...]
    not_asked: tuple[str, ...]
    """The cases that were left out because the server answered no longer."""
