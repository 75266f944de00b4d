"""Fixtures that end-to-end tests and faults share; both conftests take them from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.served import Served
from pytest_vllm_gates.fixtures.common import gates_progress

if TYPE_CHECKING:
    from pytest_vllm_gates.report.progress import Progress

__all__ = ["SHARED", "gates_progress", "shared"]

SHARED = "qwen3.5"
served_key: pytest.StashKey[Served] = pytest.StashKey()


@pytest.fixture(scope="session")
def shared(
    request: pytest.FixtureRequest,
    gates_progress: Progress,
    tmp_path_factory: pytest.TempPathFactory,
) -> Served:
    """One real server for the whole session: the first test that uses it waits for its boot."""
    stash = request.config.stash
    if served_key not in stash:
        served = Served(SHARED, tmp_path_factory.mktemp("shared"), gates_progress)
        gates_progress.done()
        stash[served_key] = served
        request.config.add_cleanup(served.stop)
    return stash[served_key]
