"""What a server said to one request, with its tokens and what else it might have said there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN = 60


@dataclass(frozen=True)
class Said:
    """An answer, or why there is none."""

    reasoning: str = ""
    content: str = ""
    finish_reason: str | None = None
    token_ids: tuple[int, ...] = ()
    candidates: tuple[Mapping[int, float], ...] = ()
    """For each token the likeliest ones at its place with their log-probabilities, in nats."""
    error: str = ""
    """What came in place of an answer."""
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything a reader sees."""
        return f"{self.reasoning}\n{self.content}".strip()

    @property
    def shown(self) -> str:
        """The text or the error, short enough for a sentence."""
        if self.error:
            return self.error
        text = self.text
        return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
