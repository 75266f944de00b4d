"""Progress of long waits: a line that rewrites itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded.characters import shown

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN_EVERY_S = 15.0
REWRITE_EVERY_S = 0.2
CLEAR = "\r\x1b[2K"


class Progress:
    """Call it with the current state, as often as you like; `done` ends the line."""

    def __init__(self, write: Callable[[str], None], *, terminal: bool) -> None:
        self._write = write
        self._terminal = terminal
        self._last = float("-inf")
        self._shown = False

    def __call__(self, text: str) -> None:
        """Show `text` as the present state."""
        now = time.monotonic()
        if now - self._last < (REWRITE_EVERY_S if self._terminal else PLAIN_EVERY_S):
            return
        self._last = now
        if self._terminal:
            self._write(
                CLEAR + shown(text).replace("\n", " ")[: shutil.get_terminal_size().columns - 1]
            )
            self._shown = True
        else:
            self._write(f"{shown(text)[:200]}\n")

    def steps(self, what: str) -> Callable[[int, int], None]:
        """Return a function that shows the finished steps, their total, and the seconds."""
        begun = time.monotonic()

        def show(done: int, total: int) -> None:
            self(f"{what}, {done} of {total} ({time.monotonic() - begun:.0f} s)")
            if done == total:
                self.done()

        return show

    def print(self, text: str) -> None:
        """Print text that stays above the current state, for example a server's log."""
        self.done()
        self._write(shown(text))

    def done(self) -> None:
        """Clear the line; the next text starts on it."""
        if self._shown:
            self._write(CLEAR)
        self._shown = False
        self._last = float("-inf")
