"""A checkpoint: the weights a server is asked to load."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """Weights by the name their goldens are kept under and the source vLLM is given."""

    name: str
    source: str
    revision: str | None = None
    serve: dict[str, Any] = field(default_factory=dict)
    untaught: tuple[str, ...] = ()
    """Kinds of questions about pictures that it cannot answer, of a miniature."""

    @property
    def folder(self) -> Path | None:
        """The local folder, or None for a checkpoint on the Hub."""
        path = Path(self.source)
        return path if path.is_dir() else None
