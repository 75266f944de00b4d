"""Answers controllers on a port of its own, so that no route of the API is taken.

`GET /-/gates/verdict` has the document, `/-/gates/metrics` Prometheus' text, `/-/gates/health` 200.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pytest_vllm_gates.shadow.metrics import ShadowCollector

if TYPE_CHECKING:
    from pytest_vllm_gates.shadow.watch import Watch

VERDICT, METRICS, HEALTH = "/-/gates/verdict", "/-/gates/metrics", "/-/gates/health"


def control_application(watch: Watch) -> web.Application:
    """Return the application of the second port."""

    async def verdict(_: web.Request) -> web.Response:
        return web.json_response(await watch.document(), dumps=_dumps)

    async def metrics(_: web.Request) -> web.Response:
        registry = CollectorRegistry()
        registry.register(ShadowCollector(await watch.document()))
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    application = web.Application()
    application.router.add_get(VERDICT, verdict)
    application.router.add_get(METRICS, metrics)
    application.router.add_get(HEALTH, health)
    return application


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
