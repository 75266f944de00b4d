"""Reads the text format of Prometheus, the format of `GET /metrics`.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from pytest_vllm_gates.client.form import reading

if TYPE_CHECKING:
    from collections.abc import Collection

    from prometheus_client import Metric
    from prometheus_client.samples import Sample

PATH = "/metrics"


def families(text: str) -> list[Metric]:
    """Return all families of metrics; raises `httpx.HTTPError` if the text has another format.

    A counter's name is without its `_total`.
    """
    with reading(PATH):
        return list(text_string_to_metric_families(text))


def samples(text: str, names: Collection[str]) -> list[Sample]:
    """Return the samples with these names; raises `httpx.HTTPError` as `families` does.

    Other lines are not parsed: a server has thousands, and is polled many times a second.
    """
    ours = tuple(names)
    lines = [line for line in text.splitlines() if line.startswith(ours)]
    found = [sample for family in families("\n".join(lines)) for sample in family.samples]
    return [sample for sample in found if sample.name in names]
