"""A server's answers to texts to embed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.outcomes import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

Vector = tuple[float, ...]
EMBEDDINGS = "/v1/embeddings"
SCORE = "/score"
RERANK = "/rerank"


@dataclass(frozen=True)
class Embedded:
    """One answer of `/v1/embeddings`: its vectors by their index, or why none came."""

    name: str
    group: str
    """The part of the gate that sent it."""
    request: Mapping[str, Any]
    vectors: tuple[Vector, ...] = ()
    prompt_tokens: int = 0
    wrong: tuple[str, ...] = ()
    """Faults of the answer's form that OpenAI's client would not accept."""
    status: int = 200
    error: str = ""
    """Why no vectors came; the server's message if it refused."""

    @property
    def case(self) -> Case:
        """The answer as a case of a check."""
        traits = {"group": self.group, "text": self.name, "status": str(self.status)}
        return Case(f"{self.group}: {self.name}", traits, self.request)


@dataclass(frozen=True)
class Scored:
    """One answer of `/score` or `/rerank`: the documents' scores, in the order they came."""

    route: str
    request: Mapping[str, Any]
    scores: tuple[tuple[int, float], ...] = ()
    """Index of the document and its score."""
    status: int = 200
    error: str = ""

    @property
    def case(self) -> Case:
        """The answer as a case of a check."""
        return Case(self.route, {"route": self.route, "status": str(self.status)}, self.request)


@dataclass
class PoolingWalk:
    """All answers for one family."""

    texts: Mapping[str, str]
    embedded: list[Embedded] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    token_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The token ids of each text, as the server makes them."""
    appended: tuple[int, ...] = ()
    """The token that the tokenizer appends to a text."""
    context: int = 0
    """The most tokens that the server takes."""
    requests: int = 0
    seconds: float = 0.0

    def of(self, *groups: str) -> list[Embedded]:
        """Return the answers of some groups."""
        return [each for each in self.embedded if each.group in groups]

    def alone(self) -> dict[str, Vector]:
        """Return each text's vector from its first request alone, by its name."""
        return {each.name: each.vectors[0] for each in self.of(ALONE) if each.vectors}


ALONE, AGAIN, BATCH, COMPANY = "alone", "again", "batch", "company"
FORM, LONG, REFUSED, NONCE = "form", "long", "refused", "nonce"
