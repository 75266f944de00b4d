"""Workers of xdist share the cores out among them."""

from __future__ import annotations

import cores
import pytest


def worker(number: int, of: int) -> dict[str, str]:
    return {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(of)}


@pytest.mark.parametrize(
    ("workers", "machine", "shares"),
    [
        (2, [0, 1], [[0], [1]]),
        (2, [0, 1, 2, 3, 6], [[0, 2, 6], [1, 3]]),
        (3, [4, 5, 6], [[4], [5], [6]]),
        (3, [4, 5], [[4, 5]] * 3),
        (1, [0, 1], [[0, 1]]),
    ],
)
def test_each_worker_has_its_share(
    workers: int, machine: list[int], shares: list[list[int]]
) -> None:
    of_each = [cores.of_worker(worker(number, workers), machine) for number in range(workers)]
    assert of_each == shares


def test_without_workers_every_core_is_kept() -> None:
    assert cores.of_worker({}, [0, 1]) == [0, 1]
