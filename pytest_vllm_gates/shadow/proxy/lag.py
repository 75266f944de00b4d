"""How late the event loop is: if clients have to wait for it, it takes no copies."""

from __future__ import annotations

import asyncio
import time

LOOK_S = 0.01
LATE_S = 0.02
"""From this delay on the loop counts as late. A few milliseconds do not: other processes may keep
the processor busy."""
IN_TIME_S = 0.01
"""Below this delay it counts as in time again."""


class LoopLag:
    """Measures repeatedly how late a timer fires."""

    def __init__(self) -> None:
        self.behind = False
        """Whether the loop has more to do than it has time for."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure, in the running loop."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Stop measuring."""
        if self._looking:
            self._looking.cancel()

    def late(self, by_s: float) -> None:
        """Record how late a timer fired."""
        self.behind = by_s > (IN_TIME_S if self.behind else LATE_S)

    async def _look(self) -> None:
        while True:
            due_s = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.late(time.monotonic() - due_s)
