"""What contestants look at, and what they return."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SUITE = "suite"
HEALTH = "health"
SMOKE = "smoke"
GOLDEN = "golden"
VENDOR = "vendor"
GSM8K = "gsm8k"
NIGHTLY = "nightly"
FIXED = "fixed"
GUIDELLM = "guidellm"
TITLES = {
    SUITE: "pytest-vllm-gates",
    HEALTH: "`/health`",
    SMOKE: "smoke prompt",
    GOLDEN: "golden answers",
    VENDOR: "vendor verifier",
    GSM8K: "GSM8K (computed)",
    NIGHTLY: "nightly speed rule",
    FIXED: "fixed 5 % speed rule",
    GUIDELLM: "guidellm",
}
"""The contestants in the order of the page, with the names that it shows."""


@dataclass(frozen=True)
class Target:
    """A server that contestants look at. `key` is never printed."""

    base_url: str
    """With `/v1`, as clients of OpenAI's API want it."""
    key: str | None = field(repr=False)
    model: str | None
    """The name to send; None where it is not known, and the first that is listed is sent."""
    family: str
    """The family file by which questions are chosen, as `qwen3.5` or `glm/flash`."""

    @property
    def root_url(self) -> str:
        """The URL without `/v1`."""
        return self.base_url.removesuffix("/v1")


@dataclass(frozen=True)
class Look:
    """One contestant's look at one server."""

    found: bool | None
    """Whether it calls the server faulty; None where it cannot look."""
    why: str = ""
    requests: int = 0
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 2)}


@dataclass(frozen=True)
class Reply:
    """One answer of a server."""

    text: str
    """Reasoning, content and tool calls, one after the other, or the error."""
    content: str = ""
    finish_reason: str = ""
    schema_valid: bool | None = None
    """Whether the arguments of all calls fit the declared tools; None without a call."""


@dataclass
class Reference:
    """What a clean server answered, and how fast."""

    replies: dict[str, Reply] = field(default_factory=dict)
    speeds: list[float] = field(default_factory=list)
    """Output tokens a second, one number a measurement, the oldest first."""

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def read(cls, record: dict[str, Any]) -> Reference:
        """Return it from JSON."""
        replies = {name: Reply(**reply) for name, reply in record["replies"].items()}
        return cls(replies, list(record["speeds"]))
