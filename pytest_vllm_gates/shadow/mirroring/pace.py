"""Slows down the reading of long answers, so that a canary that floods takes no processor time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FREE_BYTES = 256 * 2**10
"""The beginning of each answer that is read at once: more than 800 chunks of vLLM's streams."""
BYTES_A_SECOND = 32 * 2**20
"""What is read of all longer answers together: 100,000 tokens a second in chunks of 300 bytes."""
BURST_S = 1.0
"""Of a time in which nothing was read, so much is made up for."""


class ReadPace:
    """The time that is left for long answers. The system holds up a sender that is not read."""

    def __init__(
        self,
        bytes_a_second: float = BYTES_A_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_a_second = bytes_a_second
        self._clock = clock
        self._free_s = clock() - BURST_S
        """The time from which on the next piece may be read."""

    def wait_s(self, answer_bytes: int, piece_bytes: int) -> float:
        """Return the seconds to wait after a piece of an answer that has so many bytes by now."""
        if answer_bytes <= FREE_BYTES:
            return 0.0
        now_s = self._clock()
        begin_s = max(self._free_s, now_s - BURST_S)
        self._free_s = begin_s + piece_bytes / self._bytes_a_second
        return max(0.0, self._free_s - now_s)
