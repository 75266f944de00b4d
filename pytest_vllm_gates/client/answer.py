"""An answer as a client reads it, a response as received, and the exchange of one matrix cell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.outcomes import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.matrix import Cell, ConversationRule


@dataclass(frozen=True)
class ToolCall:
    """One call in the API's form; `arguments` is the JSON text, not yet parsed."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens as the server counts them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Answer:
    """One choice of one completion. Absent text is empty: null and "" mean the same."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Usage | None
    chunks: int | None = None
    """Events of the stream with content, None for a whole answer."""
    stop_reason: str | int | None = None
    """vLLM's field: the stop string or token id that ended it, None for the model's own end."""
    reasoning_key: str | None = None
    """The key of the reasoning; vLLM has used two names."""
    token_ids: tuple[int, ...] = ()
    """Ids of the generated tokens, if they were requested and the server returns them."""
    delta_tokens: tuple[int, ...] = ()
    """The number of tokens in each delta of a stream, under the same condition."""

    @property
    def is_wide(self) -> bool:
        """Whether a delta contained several tokens, as when a busy server falls behind."""
        return max(self.delta_tokens, default=1) > 1

    @property
    def has_text(self) -> bool:
        """Whether there is an answer to read, calls aside."""
        return bool(self.content.strip())

    def as_evidence(self) -> dict[str, Any]:
        """Return the parts of the answer that a client reads, as JSON."""
        unread = {"token_ids", "delta_tokens"}
        return {name: value for name, value in asdict(self).items() if name not in unread}


@dataclass(frozen=True)
class Recording:
    """A response as received on the wire."""

    kind: str = ""
    """The content type."""
    pieces: tuple[tuple[float, bytes], ...] = ()
    """The received chunks, with the seconds since the request was sent."""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(piece for _, piece in self.pieces)


@dataclass(frozen=True)
class Exchange:
    """A cell's answers: whole, streamed, and streamed with several tokens a delta.

    `error` is the reason if there are none. `raw` is the text of the whole answer's tokens, markers
    and special tokens included, None if the server returns no token ids.
    """

    cell: Cell
    asked: ConversationRule
    request: Mapping[str, Any]
    thinks: bool
    """Whether the model must think, by the switch or by the family's default."""
    whole: Answer | None = None
    streamed: Answer | None = None
    widened: Answer | None = None
    body: Recording = field(default_factory=Recording)
    """The whole answer as it arrived."""
    stream: Recording = field(default_factory=Recording)
    raw: str | None = None
    unstopped: Answer | None = None
    """The answer to the same request without its stop, if the cell has one."""
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
