"""The ladder of prompt lengths with its results, and the text of `long_context.toml`."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.server.watchdog import Hang, RestState

Prefix = Literal["cold", "warm"]


@dataclass(frozen=True)
class Rung:
    """`at_once` requests of the same length; lengths in tokens."""

    prompt_tokens: int
    output_tokens: int
    at_once: int = 1
    prefix: Prefix = "cold"

    @property
    def name(self) -> str:
        """The rung's name in a report."""
        crowd = f" x {self.at_once}" if self.at_once > 1 else ""
        return f"{self.prompt_tokens} + {self.output_tokens} tokens{crowd}, {self.prefix}"


@dataclass(frozen=True)
class PromptReply:
    """One answer to a prompt of token ids, or the reason why it is missing."""

    error: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    """The server's count."""
    output: tuple[int, ...] = ()
    output_logprobs: tuple[float, ...] = ()
    leads: tuple[float, ...] = ()
    """The lead of each token over the second best, in nats."""
    seconds: float = 0.0


@dataclass(frozen=True)
class RungResult:
    """The replies to one rung."""

    rung: Rung
    replies: tuple[PromptReply, ...]
    rest: RestState | None
    """None after a rung from which the server did not recover."""
    waited: int = 0
    """The most requests seen waiting."""
    preempted: int = 0
    hang: Hang | None = None

    @property
    def survived(self) -> bool:
        """Whether the server answers after it."""
        return self.hang is None and self.rest is not None and not self.rest.canary.error

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON, without tokens."""
        evidence: dict[str, Any] = {
            **asdict(self.rung),
            "seconds": round(max((reply.seconds for reply in self.replies), default=0.0), 3),
            "waited": self.waited,
            "preempted": self.preempted,
            "errors": sorted({reply.error for reply in self.replies if reply.error}),
        }
        if self.rest:
            evidence |= {
                "kv_usage_after": self.rest.kv_usage,
                "in_flight_after": self.rest.in_flight,
                "memory_bytes_after": self.rest.memory_bytes,
            }
        return evidence


@dataclass(frozen=True)
class Refusal:
    """The reply to a request that is too long."""

    name: str
    prompt_tokens: int
    output_tokens: int
    status: int | None
    text: str
    completion_tokens: int | None
    """Tokens that were generated nevertheless, by the server's count."""
    rest: RestState


@dataclass(frozen=True)
class LadderResult:
    """The whole ladder, as far as the server could be tested."""

    context: int
    """Tokens of context that the server reports."""
    healthy: Completion
    """The canary's answer before the first rung."""
    rungs: tuple[RungResult, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    not_asked: tuple[str, ...] = field(default_factory=tuple)


FILE = data.FOLDER / "long_context.toml"


class Needle(toml.Record):
    """A sentence hidden in a long text, and the question that it answers."""

    says: str
    asks: str
    depths: tuple[float, ...] = Field(min_length=1)
    """The depths at which it is hidden: 0 is the beginning of the text, 1 its end."""
    short_tokens: int
    """The length of a text in which any able model finds it."""
    answer_tokens: int


class LongContext(toml.Record):
    """The contents of the file: the text, and how the ladder uses it."""

    output_tokens: int
    beyond: int
    crowd: int
    scored: int
    paragraphs: tuple[str, ...] = Field(min_length=1)
    needle: Needle

    def text_of(self, count: int) -> Iterator[str]:
        """Yield the text's first paragraphs, numbered, each with its line's end."""
        paragraphs = itertools.islice(itertools.cycle(self.paragraphs), count)
        for number, paragraph in enumerate(paragraphs, start=1):
            yield f"{number}. {paragraph}\n"


def load() -> LongContext:
    """Read the shipped text."""
    return toml.load(FILE, LongContext)
