"""What a server answered to texts that it was to classify, and to pairs that it was to score."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.outcomes import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

CLASSIFY = "/classify"
TOKENS, RANKED = "tokens", "ranked"
"""Groups of requests besides those of `types`: by token ids, and by `/rerank`."""


@dataclass(frozen=True)
class Classified:
    """One answer of `/classify`, `/score` or `/rerank`: rows by their index, or why there are none.

    A row is the probabilities of one text, or the one score of a pair.
    """

    name: str
    group: str
    """Which part of the gate asked it."""
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
    """Why there are no rows; the server's message where it refused."""

    @property
    def case(self) -> Case:
        """It as a case of a check."""
        traits = {"group": self.group, "route": self.route, "status": str(self.status)}
        return Case(f"{self.group}: {self.name}", traits, self.request)


@dataclass
class ClassesWalk:
    """Everything that was asked of one family that classifies or scores."""

    inputs: Mapping[str, tuple[str, ...]]
    """The text, or the question and its document, by name."""
    own: Mapping[str, str]
    """Of each pair that belongs together, one with another document."""
    asked: list[Classified] = field(default_factory=list)
    token_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of each input, as the server makes them."""
    requests: int = 0
    seconds: float = 0.0

    def of(self, *groups: str) -> list[Classified]:
        """Return the answers of some groups."""
        return [each for each in self.asked if each.group in groups]

    def alone(self) -> dict[str, tuple[float, ...]]:
        """Return each input's row from when it was first asked alone, by its name."""
        return {each.name: each.rows[0] for each in self.of("alone") if each.rows}
