"""One request as sent, with its whole response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.redaction.values import REDACTED

if TYPE_CHECKING:
    from collections.abc import Mapping

# Headers whose values do not identify the client.
TOLD_HEADERS = {
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type",
    "date", "host", "server", "transfer-encoding", "user-agent", "x-request-id",
}  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """One request as sent, with its whole response."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    name: str = ""
    status: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[tuple[float, bytes], ...] = ()
    """The response's body as received, with the seconds since the request was sent."""
    error: str = ""
    cut_bytes: int = 0
    """Bytes of the response after the stored part."""

    @property
    def answer(self) -> bytes:
        """The response's body."""
        return b"".join(piece for _, piece in self.pieces)

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        return len(self.body) + sum(len(piece) + 128 for _, piece in self.pieces) + 1024


def redacted_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers without secrets, for an incident."""
    return {
        name: value if name.lower() in TOLD_HEADERS else REDACTED for name, value in headers.items()
    }
