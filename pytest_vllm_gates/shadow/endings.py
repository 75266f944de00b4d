"""Ends in order on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys


def on_signals(ending: asyncio.Event) -> None:
    """Set `ending` on SIGTERM and Ctrl-C; a second one ends at once."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        if ending.is_set():
            print("ended at once", file=sys.stderr)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, end)
