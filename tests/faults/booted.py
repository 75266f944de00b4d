"""A real server of a miniature behind the proxy, in place of the one that all tests share."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from e2e.served import Served

from faults.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_vllm_gates.report.progress import Progress


@contextlib.contextmanager
def booted(
    miniature: str,
    folder: Path,
    progress: Progress,
    lane: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Upstream]:
    """Boot a miniature with additions to a lane's `env` and `serve`, and end it."""
    served = Served(miniature, folder, progress, lane)
    progress.done()
    try:
        endpoint = served.endpoint
        yield Upstream(endpoint.base_url, endpoint.api_key, endpoint.model)
    finally:
        served.stop()
