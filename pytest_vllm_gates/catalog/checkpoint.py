"""A checkpoint: the weights that a server loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """Weights: the name of their goldens' folder, and the source that is passed to vLLM."""

    name: str
    source: str
    revision: str | None = None
    serve: dict[str, Any] = field(default_factory=dict)
    untaught: tuple[str, ...] = ()
    """Kinds of questions about pictures that a miniature cannot answer."""

    @property
    def folder(self) -> Path | None:
        """The local folder, or None for a checkpoint on the Hub."""
        path = Path(self.source)
        return path if path.is_dir() else None
