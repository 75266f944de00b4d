"""The result of a boot: a running server, or a failure with its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.failure import Explanation

# The beginning of the reason of a gate that is BLOCKED because no server booted.
DID_NOT_BOOT = "the server did not boot"
DOES_NOT_SERVE = "the server runs and does not serve"
BASE_URL = "base_url"
"""The key of a running server's address in the evidence."""
GONE = "the server is gone"
KEPT = "kept"
"""The key, in a boot's evidence, of a server that is kept for other runs."""


@dataclass(frozen=True)
class Failure:
    """Why a server is not there: one sentence, the explanation of its log, and the next step."""

    what: str
    log: Path | None = None
    excerpt: tuple[str, ...] = ()
    hint: str = ""
    explanation: Explanation | None = None
    """The explanation by the log's signatures; None without a log or without signatures."""
    infrastructure: bool = False
    """Whether the cause is not what is served: the network, a gateway, the disk, a package."""

    @property
    def of_infrastructure(self) -> bool:
        """Whether the failure is outside the server, by itself or by its log."""
        named = self.explanation is not None and self.explanation.of_infrastructure
        return self.infrastructure or named

    @property
    def brief(self) -> str:
        """The failure in one line, with its name and its fix, if known."""
        brief = self.explanation.brief if self.explanation else ""
        headline = self.what.splitlines()[0]
        return f"{headline}: {brief}" if brief else headline

    @property
    def with_next_step(self) -> str:
        """The failure with its next step on the first line, which is the only line in a summary."""
        more = self.explain().splitlines()[1:]
        if self.hint:
            return "\n".join([f"{self.brief}; next: {self.hint}", *more])
        # Two lines are the problem and its fix, as in a `UserError`.
        return "\n".join([self.brief, *more]) if len(more) > 1 else "; ".join([self.brief, *more])

    def explain(self) -> str:
        """Return the failure for a person at a terminal."""
        explanation = self.explanation
        # The name is on the first line, which is the only line in a summary.
        lines = [
            f"{self.what}: {explanation.name}" if explanation and explanation.name else self.what
        ]
        if explanation and explanation.id:
            lines += ["", *explanation.lines()]
        elif self.excerpt:
            lines += ["", "from the log:", *(f"    {line}" for line in self.excerpt)]
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
    """These two are None for a server that already ran: its start is not known."""
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
