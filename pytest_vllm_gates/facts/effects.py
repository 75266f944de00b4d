"""What a sampling parameter did to a completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Generated:
    """One choice of a completion."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    logprobs: tuple[float, ...] = ()
    """Of the tokens, in nats."""
    best: tuple[float, ...] = ()
    """The highest log-probability that is told at each token's place, in nats."""


@dataclass(frozen=True)
class Effect:
    """What came of a request that sets a parameter."""

    parameter: str
    how: str
    """`whole` or `streamed`."""
    request: Mapping[str, Any]
    choices: tuple[Generated, ...] = ()
    barred: frozenset[int] = frozenset()
    """Tokens that the parameter forbids."""
    refused: str = ""
    """Why the server does not take it, where it says so."""
    failed: str = ""
    """How the server failed."""

    @property
    def name(self) -> str:
        """What a case of it is called."""
        return f"{self.parameter}, {self.how}"
