"""One cell of the matrix as it was asked: the requests, and everything that came back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.facts.finding import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.matrix import Asked, Cell
    from pytest_vllm_gates.facts.answer import Answer


@dataclass(frozen=True)
class Recording:
    """A response as it arrived on the wire."""

    kind: str = ""
    """The content type."""
    pieces: tuple[tuple[float, bytes], ...] = ()
    """What arrived, with the seconds since the request was sent."""

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(piece for _, piece in self.pieces)


@dataclass(frozen=True)
class Exchange:
    """A cell's answers: whole, streamed, and streamed with several tokens a delta.

    `error` says why there are none. `raw` is the text of the whole answer's tokens, markers and
    special tokens included, None where the server tells no token ids.
    """

    cell: Cell
    asked: Asked
    request: Mapping[str, Any]
    thinks: bool
    """Whether the model is to think, by the switch or by the family's default."""
    whole: Answer | None = None
    streamed: Answer | None = None
    widened: Answer | None = None
    stream: Recording = field(default_factory=Recording)
    raw: str | None = None
    unstopped: Answer | None = None
    """The answer to the same request without its stop, where the cell has one."""
    stop: str | int | None = None
    """The stop string, or the id of the stop token."""
    error: str = ""

    @property
    def case(self) -> Case:
        """The cell as a case of a check."""
        return Case(self.cell.name, self.cell.traits, self.request)

    @property
    def stopped(self) -> bool:
        """Whether the request's own stop ended the answer."""
        stopped = None if self.whole is None else self.whole.stop_reason
        return stopped is not None and stopped == self.stop

    @property
    def cut(self) -> bool:
        """Whether the limit of tokens ended the answer."""
        return self.whole is not None and self.whole.finish_reason == "length"
