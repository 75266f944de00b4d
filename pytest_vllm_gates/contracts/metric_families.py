"""Which metrics a server tells (`GET /metrics`, Prometheus text), whatever their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.contracts.types import Metric
from pytest_vllm_gates.server.metrics import LABEL

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

TYPE = re.compile(r"# TYPE (\S+) (\w+)")
SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ")
PARTS = ("_bucket", "_sum", "_count")
"""What the samples of a histogram or a summary are called besides."""
VALUES = {"le", "quantile"}
"""Labels that are a part of the measured value."""


def told(endpoint: Endpoint) -> dict[str, Metric] | None:
    """Return every family of metrics by its name; None where the server tells none."""
    with http.client(endpoint) as client:
        try:
            return read(client.get("/metrics").raise_for_status().text) or None
        except httpx.HTTPError:
            return None


def read(text: str) -> dict[str, Metric]:
    """Return the families of metrics in a text of Prometheus' format; what has no type is none."""
    lines = text.splitlines()
    types = {match[1]: match[2] for line in lines if (match := TYPE.match(line))}
    labels: dict[str, set[str]] = {}
    for sample in filter(None, map(SAMPLE.match, lines)):
        name = sample[1]
        whole = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
        name = whole if types.get(whole) in ("histogram", "summary") else name
        found = LABEL.findall(sample[2] or "")
        labels.setdefault(name, set()).update(label for label, _ in found)
    return {
        name: Metric(kind, tuple(sorted(labels[name] - VALUES)) if name in labels else None)
        for name, kind in types.items()
    }
