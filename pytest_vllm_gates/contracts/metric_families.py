"""The families of metrics that a server exposes (`GET /metrics`, Prometheus text)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.contracts.types import Metric
from pytest_vllm_gates.server import exposition

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

    from pytest_vllm_gates.client.endpoint import Endpoint

UNTYPED = "unknown"
"""The parser's name for a missing type."""
COUNTED = "_total"
"""The end of a counter's name, which the parser removes."""
VALUES = {"le", "quantile"}
"""Labels that are a part of the measured value."""


def fetch(endpoint: Endpoint) -> dict[str, Metric] | None:
    """Return every family of metrics by its name; None if the server exposes none."""
    with http.client(endpoint) as client:
        try:
            return parse(client.get("/metrics").raise_for_status().text) or None
        except httpx.HTTPError:
            return None


def parse(text: str) -> dict[str, Metric]:
    """Return the families of metrics in a Prometheus text; names without a type are left out.

    Raises `httpx.HTTPError` for another format.
    """
    typed = [family for family in exposition.families(text) if family.type != UNTYPED]
    return {
        f"{family.name}{COUNTED}" if family.type == "counter" else family.name: Metric(
            family.type, _labels(family)
        )
        for family in typed
    }


def _labels(family: Family) -> tuple[str, ...] | None:
    if not family.samples:
        return None
    names = {label for sample in family.samples for label in sample.labels}
    return tuple(sorted(names - VALUES))
