"""A shadow's counts as Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

PREFIX = "vllm_gates_shadow"
ANSWERS = ("PROMOTE", "HOLD", "REJECT")


class ShadowCollector(Collector):
    """Yields the metrics of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        document = self._document
        traffic = document["traffic"]
        promotion = GaugeMetricFamily(
            f"{PREFIX}_promotion", "1 for the present answer, 0 for the others", labels=["answer"]
        )
        for answer in ANSWERS:
            promotion.add_metric([answer], document["promotion"] == answer)
        yield promotion
        for name, help_text, value in (
            ("pairs", "pairs that were judged", document["pairs"]),
            ("requests", "requests passed on to the stable server", traffic["passed"]),
            ("requests_failed", "requests that could not be sent to it", traffic["failed"]),
            ("copies", "copies sent to the canary", traffic["mirrored"]),
        ):
            yield CounterMetricFamily(f"{PREFIX}_{name}", help_text, value=value)
        for name, help_text in (
            ("not_mirrored", "requests without a pair, by the reason"),
            ("not_judged", "pairs that are not judged, by the reason"),
        ):
            counter = CounterMetricFamily(f"{PREFIX}_{name}", help_text, labels=["reason"])
            for reason, count in traffic[name].items():
                counter.add_metric([reason], count)
            yield counter
        yield from self._of_kinds(document["kinds"])
        yield from self._of_figures(document["figures"])

    @staticmethod
    def _of_kinds(kinds: list[dict[str, object]]) -> Iterator[Metric]:
        failures = CounterMetricFamily(
            f"{PREFIX}_failures", "pairs with a broken invariant", labels=["kind", "side"]
        )
        odds = GaugeMetricFamily(
            f"{PREFIX}_odds", "evidence that the canary is worse, to one", labels=["kind"]
        )
        for kind in kinds:
            name = str(kind["name"])
            for side in ("canary_only", "stable_only", "both"):
                failures.add_metric([name, side], float(str(kind[side])))
            odds.add_metric([name], float(str(kind["odds"])))
        yield failures
        yield odds

    @staticmethod
    def _of_figures(figures: list[dict[str, object]]) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            f"{PREFIX}_figure", "quantile of a figure of answers; times in seconds",
            labels=["figure", "quantile", "side"],
        )  # fmt: skip
        for figure in figures:
            for side in ("stable", "canary"):
                bounds = figure[side]
                if isinstance(bounds, dict):
                    labels = [str(figure["name"]), str(figure["quantile"]), side]
                    gauge.add_metric(labels, bounds["value"])
        yield gauge
