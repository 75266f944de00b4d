"""Tests of what the allocator keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from pytest_vllm_gates.process import allocator

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="no other C library keeps as much"
)
RETURN = "from pytest_vllm_gates.process import allocator; allocator.return_freed_memory()"
# After one of 10 MiB was freed, what remains of a block of 9 MiB, in KiB.
BLOCKS = """
def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

first = b"x" * 10 * 2**20
del first
before = resident_kib()
second = b"x" * 9 * 2**20
del second
print(resident_kib() - before)
"""
# malloc_info(3) lists the heaps, once six threads have allocated side by side.
THREADS = """
import ctypes, threading
together = threading.Barrier(6)

def allocate():
    together.wait()
    kept = bytes(100_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
output = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, output)
libc.fclose(output)
"""


def output_of(*parts: str) -> str:
    """Return what a program prints, without the user's own settings of malloc."""
    command = [sys.executable, "-c", "\n".join(parts)]
    names = {name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    env = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout


def test_freed_megabytes_are_returned() -> None:
    assert int(output_of(BLOCKS)) > 8 * 1024
    assert int(output_of(RETURN, BLOCKS)) < 1024


def test_threads_share_heaps() -> None:
    assert output_of(THREADS).count("<heap nr=") > allocator.HEAPS
    assert output_of(RETURN, THREADS).count("<heap nr=") <= allocator.HEAPS
