"""One run of the forced texts: a server's scores of the same tokens, alone and in a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ForcedText:
    """Natural logarithms throughout; `alone[i]` and `together[i]` belong to `ids[i + 1]`."""

    name: str
    ids: tuple[int, ...]
    alone: tuple[float, ...]
    together: tuple[float, ...]
    """The same, requested beside the other texts."""
    answer: tuple[int, ...] = ()
    """Tokens of the greedy continuation."""
    answer_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class ForcedRun:
    """The texts as one server scored them, and the server's facts."""

    weights: str
    """SHA-256 of the weight files; "unknown" if they are not on this machine."""
    build: str
    """The version of vLLM, and the other facts that decide which kernels run (`forced.build`)."""
    machine: str
    """The processor or GPUs; the address of a server that was attached to."""
    texts: tuple[ForcedText, ...]
    declared: Mapping[str, str] = field(default_factory=dict)
    """The flags that name a precision or change positions, by name."""

    @property
    def tokens(self) -> int:
        """How many tokens were forced."""
        return sum(len(text.alone) for text in self.texts)
