"""Where a served family answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.bounds import DEFAULT, Bounds, Strikes

if TYPE_CHECKING:
    from pytest_vllm_gates.client.recorder import Tape


@dataclass(frozen=True)
class Endpoint:
    """Where a served family answers. `api_key` is never printed."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    tape: Tape | None = field(default=None, repr=False, compare=False)
    """Where what is sent there is kept, and what comes back."""
    bounds: Bounds = field(default=DEFAULT, repr=False, compare=False)
    strikes: Strikes = field(default_factory=Strikes, repr=False, compare=False)
    """How often the server went over the bounds."""

    @property
    def root_url(self) -> str:
        """The URL without `/v1`, where `/health`, `/tokenize` and `/metrics` live."""
        return self.base_url.removesuffix("/v1")
