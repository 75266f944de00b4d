"""The result of a boot: a running server, or a failure with its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.failure import Explanation

# How the reason of what is BLOCKED for want of a server begins.
DID_NOT_BOOT = "the server did not boot"
DOES_NOT_SERVE = "the server runs and does not serve"
BASE_URL = "base_url"
"""Under this name the evidence of a server that already ran tells its address."""
GONE = "the server is gone"
KEPT = "kept"
"""Under this name a boot's evidence tells of a server that is kept for other runs."""


@dataclass(frozen=True)
class Failure:
    """Why a server is not there: one sentence, what its log comes to and the next step."""

    what: str
    log: Path | None = None
    excerpt: tuple[str, ...] = ()
    hint: str = ""
    explanation: Explanation | None = None
    """What the log's signatures say; None where there is no log, or nothing to know it by."""
    infrastructure: bool = False
    """Whether it says nothing of what is served: the network, a gateway, the disk, a package."""

    @property
    def of_infrastructure(self) -> bool:
        """Whether what surrounds the server failed, by what is known of it or by its log."""
        named = self.explanation is not None and self.explanation.of_infrastructure
        return self.infrastructure or named

    @property
    def brief(self) -> str:
        """The failure in one line, with its name and the fix where it has one."""
        brief = self.explanation.brief if self.explanation else ""
        headline = self.what.splitlines()[0]
        return f"{headline}: {brief}" if brief else headline

    @property
    def with_next_step(self) -> str:
        """The failure with its next step on the first line, which is all that a summary shows."""
        more = self.explain().splitlines()[1:]
        if self.hint:
            return "\n".join([f"{self.brief}; next: {self.hint}", *more])
        # Two lines are what is wrong and what mends it, as a `UserError` has them.
        return "\n".join([self.brief, *more]) if len(more) > 1 else "; ".join([self.brief, *more])

    def explain(self) -> str:
        """Return the failure as a person reads it in a terminal."""
        explanation = self.explanation
        # The name stands on the first line, which is all that a summary shows.
        lines = [
            f"{self.what}: {explanation.name}" if explanation and explanation.name else self.what
        ]
        if explanation and explanation.id:
            lines += ["", *explanation.lines()]
        elif self.excerpt:
            lines += ["", "the log says:", *(f"    {line}" for line in self.excerpt)]
        if self.log:
            lines += ["", f"whole log: {self.log}"]
        if self.hint:
            lines.append(f"next: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True)
class BootTimes:
    """Seconds from the start of the process to each stage, on a monotonic clock."""

    health_s: float | None
    first_chat_s: float | None
    """These two are None for a server that ran already: its start is not known."""
    first_token_s: float | None
    """Seconds from sending the first chat to its first generated token; None for a renderer."""


@dataclass(frozen=True)
class Boot:
    """The result of one boot; exactly one of `endpoint` and `failure` is set."""

    endpoint: Endpoint | None = None
    failure: Failure | None = None
    times: BootTimes | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def generates(self) -> bool:
        """Whether it answers chats; a renderer alone only renders their prompts."""
        return self.times is not None and self.times.first_token_s is not None
