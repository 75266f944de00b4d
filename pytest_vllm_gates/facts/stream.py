"""A stream as a person sees it arrive."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Timed:
    """When the chunks of one stream arrived that carried text.

    `times` are seconds since the request was sent, `sizes` the characters each chunk carried,
    `tokens` the tokens of the answer. `beats` are the times at which the server answered something
    else meanwhile: while it does not, nothing can be said about the stream.
    """

    what: str
    tokens: int
    times: tuple[float, ...]
    sizes: tuple[int, ...]
    beats: tuple[float, ...]

    def silence_between(self, start: float, end: float) -> float:
        """Return the longest time, within a stretch of it, in which the server answered nothing."""
        stops = [start, *(at for at in self.beats if start < at < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(stops))

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON, times in milliseconds."""
        found = asdict(self)
        for name in ("times", "beats"):
            found[f"{name}_ms"] = [round(at * 1000, 1) for at in found.pop(name)]
        return found
