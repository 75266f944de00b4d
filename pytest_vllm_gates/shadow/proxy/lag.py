"""How late the event loop is: what clients wait for, if it is late, comes before all copies."""

from __future__ import annotations

import asyncio
import time

LOOK_S = 0.01
LATE_S = 0.02
"""From this delay on the loop is behind. Some milliseconds are no sign of that: others may keep the
processor busy."""
IN_TIME_S = 0.01
"""Below this one it is not any more."""


class LoopLag:
    """Looks again and again how late a timer is."""

    def __init__(self) -> None:
        self.behind = False
        """Whether the loop has more to do than it has time for."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, in the running loop."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Look no more."""
        if self._looking:
            self._looking.cancel()

    def late(self, by_s: float) -> None:
        """Take note of how late a timer was."""
        self.behind = by_s > (IN_TIME_S if self.behind else LATE_S)

    async def _look(self) -> None:
        while True:
            due_s = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.late(time.monotonic() - due_s)
