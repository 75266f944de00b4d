"""Slows down the reading of long answers, so that a canary that floods takes no processor time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FREE_BYTES = 256 * 2**10
"""The beginning of each answer, read without delay: more than 800 chunks of vLLM's streams."""
BYTES_A_SECOND = 32 * 2**20
"""The rate of all longer answers together: 100,000 tokens a second in chunks of 300 bytes."""
BURST_S = 1.0
"""The time that is made up for after a pause of any length."""


class ReadPace:
    """The time that is left for long answers. While nothing is read, TCP holds up the sender."""

    def __init__(
        self,
        bytes_a_second: float = BYTES_A_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_a_second = bytes_a_second
        self._clock = clock
        self._free_s = clock() - BURST_S
        """The time of the next piece."""

    def wait_s(self, answer_bytes: int, piece_bytes: int) -> float:
        """Return the seconds to wait after a piece of an answer that has so many bytes by now."""
        if answer_bytes <= FREE_BYTES:
            return 0.0
        now_s = self._clock()
        begin_s = max(self._free_s, now_s - BURST_S)
        self._free_s = begin_s + piece_bytes / self._bytes_a_second
        return max(0.0, self._free_s - now_s)
