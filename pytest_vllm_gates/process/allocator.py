"""Has glibc return freed memory to the system, as far as it can be told to.

glibc raises the size from which a block is mapped by itself to that of the largest such block that
was freed, up to 32 MiB. Later blocks below that size come from the heap, which keeps them after
they are freed. A threshold that was set is not raised. Threads get heaps of their own, up to eight
a core, and each keeps what it once had; Python's threads seldom allocate at the same time. See
M_MMAP_THRESHOLD and M_ARENA_MAX in mallopt(3),
https://man7.org/linux/man-pages/man3/mallopt.3.html.
"""

from __future__ import annotations

import contextlib
import ctypes

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
THRESHOLD_BYTES = 2**20
HEAPS = 2


def return_freed_memory() -> None:
    """Map blocks of at least `THRESHOLD_BYTES` by themselves, and share `HEAPS` among threads.

    Does nothing with another C library.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)
        libc.mallopt(M_ARENA_MAX, HEAPS)
