"""Looks at a server while something else loads it, and notices when nothing moves any more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from pytest_vllm_gates.server.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.facts.load import Load
    from pytest_vllm_gates.long_context.types import Hang
    from pytest_vllm_gates.server.metrics import Metrics

LOOK_S = 0.1


class Watch:
    """Looks from a thread of its own while its `with` block lasts."""

    def __init__(
        self, metrics: Metrics | None, still_s: float, hang: Callable[[Watchdog], Hang]
    ) -> None:
        """`still_s`: how long nothing may move; `hang` tells of a server in which nothing does."""
        self._watchdog = Watchdog(metrics)
        self._still_s = still_s
        self._tell = hang
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen: list[Load] = []
        self.hang: Hang | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        watchdog = self._watchdog
        while not self._over.wait(LOOK_S):
            silent_s = watchdog.silent_s()
            if watchdog.last is None:
                continue  # it has told nothing yet
            if watchdog.last not in self.seen[-1:]:
                self.seen.append(watchdog.last)
            if silent_s > self._still_s and not self.hang:
                self.hang = self._tell(watchdog)
