"""A server's answers to texts to classify and pairs to score."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.outcomes import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

CLASSIFY = "/classify"
TOKENS, RANKED = "tokens", "ranked"
"""Groups of requests in addition to those of `types`: by token ids, and by `/rerank`."""


@dataclass(frozen=True)
class Classified:
    """One answer of `/classify`, `/score` or `/rerank`: rows by their index, or why none came.

    A row is the probabilities of one text, or the one score of a pair.
    """

    name: str
    group: str
    """The part of the gate that sent it."""
    route: str
    request: Mapping[str, Any]
    rows: tuple[tuple[float, ...], ...] = ()
    labels: tuple[str | None, ...] = ()
    """The label that `/classify` names for each row."""
    indices: tuple[int, ...] = ()
    """The index of each row, in the order they came."""
    prompt_tokens: int = 0
    status: int = 200
    error: str = ""
    """Why no rows came; the server's message if it refused."""

    @property
    def case(self) -> Case:
        """The answer as a case of a check."""
        traits = {"group": self.group, "route": self.route, "status": str(self.status)}
        return Case(f"{self.group}: {self.name}", traits, self.request)


@dataclass
class ClassesWalk:
    """All answers for one family that classifies or scores."""

    inputs: Mapping[str, tuple[str, ...]]
    """The text, or the question and its document, by name."""
    own: Mapping[str, str]
    """For each pair that belongs together, a pair with another document."""
    asked: list[Classified] = field(default_factory=list)
    token_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The token ids of each input, as the server makes them."""
    requests: int = 0
    seconds: float = 0.0

    def of(self, *groups: str) -> list[Classified]:
        """Return the answers of some groups."""
        return [each for each in self.asked if each.group in groups]

    def alone(self) -> dict[str, tuple[float, ...]]:
        """Return each input's row from its first request alone, by its name."""
        return {each.name: each.rows[0] for each in self.of("alone") if each.rows}
