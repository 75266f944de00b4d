"""The results of requests about pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.outcomes import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.vision.cases import VisionCase


@dataclass(frozen=True)
class RenderedImages:
    """A prompt with images as the server rendered it."""

    token_ids: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    """The start of each image's tokens, and their number."""
    hashes: tuple[str, ...]
    """The server's identity of each image."""


@dataclass(frozen=True)
class SeenCase:
    """One request about pictures and its answers."""

    name: str
    group: str
    """The part of the gate that sent it."""
    case: VisionCase
    request: Mapping[str, Any]
    sizes: tuple[tuple[int, int], ...]
    """Width and height of each picture, in pixels."""
    whole: Answer | None = None
    streamed: Answer | None = None
    rendered: RenderedImages | None = None
    error: str = ""
    """Why no answer came."""

    @property
    def finding_case(self) -> Case:
        """The result as a case of a check."""
        traits = {"group": self.group, "kind": self.case.kind, "picture": self.name}
        return Case(f"{self.group}: {self.name}", traits, self.request)


@dataclass(frozen=True)
class RefusedCase:
    """A request that has to be refused, and the answer."""

    name: str
    group: str
    request: Mapping[str, Any]
    status: int
    """The HTTP status; 0 if nothing came."""
    message: str
    """The error's message, or the beginning of the body."""
    is_error: bool
    """Whether the body is an error of OpenAI's form."""
    afterwards: str = ""
    """Why the server does not see afterwards; empty if it does."""

    @property
    def finding_case(self) -> Case:
        """The result as a case of a check."""
        traits = {"group": self.group, "picture": self.name, "status": str(self.status)}
        return Case(f"{self.group}: {self.name}", traits, self.request)


@dataclass
class SightWalk:
    """All results about pictures for one family."""

    seen: list[SeenCase] = field(default_factory=list)
    refused: list[RefusedCase] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    """Addresses that the server fetched although they are this machine's own."""
    requests: int = 0
    seconds: float = 0.0

    def of(self, *groups: str) -> list[SeenCase]:
        """Return the cases of some groups."""
        return [case for case in self.seen if case.group in groups]
