"""Waiting for descriptors, whatever their number."""

from __future__ import annotations

import fcntl
import os
import resource
import time
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.descriptors import readable, writable

if TYPE_CHECKING:
    from collections.abc import Iterator

BEYOND_SELECT = 1500


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a pipe, both beyond what select(2) can watch."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < BEYOND_SELECT + 2:
        pytest.skip("this machine allows no descriptor above 1,500")
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD, BEYOND_SELECT) for end in ends)
    for end in ends:
        os.close(end)
    yield high[0], high[1]
    for end in high:
        try:
            os.close(end)
        except OSError:
            continue  # the test closed it


def test_nothing_is_readable_before_a_byte_came(pipe: tuple[int, int]) -> None:
    began = time.monotonic()
    assert readable([pipe[0]], 0.02) == []
    assert time.monotonic() - began >= 0.02


def test_a_byte_is_seen_at_any_descriptor(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"x")
    assert readable([pipe[0]], 0.0) == [pipe[0]]


def test_end_of_file_is_seen(pipe: tuple[int, int]) -> None:
    os.close(pipe[1])
    assert readable([pipe[0]], 0.0) == [pipe[0]]


def test_full_pipe_is_not_writable_until_it_is_read(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    written = os.write(pipe[1], bytes(2**21))
    assert not writable(pipe[1], 0.0)
    assert len(os.read(pipe[0], written)) == written
    assert writable(pipe[1], 0.0)


def test_a_pipe_without_a_reader_is_writable_so_that_the_write_fails(
    pipe: tuple[int, int],
) -> None:
    os.close(pipe[0])
    assert writable(pipe[1], 0.0)
    with pytest.raises(BrokenPipeError):
        os.write(pipe[1], b"x")


def test_a_negative_time_does_not_wait(pipe: tuple[int, int]) -> None:
    assert readable([pipe[0]], -1.0) == []
