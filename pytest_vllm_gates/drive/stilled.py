"""Holds a server's processes still (SIGSTOP) while another is measured on the same machine.

An idle server is not at rest: a worker of vLLM asks its queue again and again for a second after
its last step and gives the processor away in between (`sched_yield`), and two workers that are
bound to one core pass it to and fro four million times in a minute.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from pytest_vllm_gates.process.guard import signal_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def stilled(processes: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Stop these processes as long as the block lasts; those that may not be stopped go on."""
    found = [*processes()]
    try:
        signal_all(found, signal.SIGSTOP)
        yield
    finally:
        signal_all(found, signal.SIGCONT)
