"""The families of metrics that a server exposes (`GET /metrics`, Prometheus text)."""

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
SUFFIXES = ("_bucket", "_sum", "_count")
"""Suffixes of the samples of a histogram or a summary."""
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
    """Return the families of metrics in a Prometheus text; names without a type are left out."""
    lines = text.splitlines()
    types = {match[1]: match[2] for line in lines if (match := TYPE.match(line))}
    labels: dict[str, set[str]] = {}
    for sample in filter(None, map(SAMPLE.match, lines)):
        name = sample[1]
        family = next(
            (name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name
        )
        name = family if types.get(family) in ("histogram", "summary") else name
        pairs = LABEL.findall(sample[2] or "")
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    return {
        name: Metric(kind, tuple(sorted(labels[name] - VALUES)) if name in labels else None)
        for name, kind in types.items()
    }
