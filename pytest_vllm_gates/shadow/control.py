"""Answers controllers on a second port, so that the API keeps all of its routes.

`GET /-/gates/verdict` has the document, `/-/gates/metrics` Prometheus' text, `/-/gates/health` 200.
`/-/gates/page`, if the user enabled it, shows the document live.
For controllers that read only the status, each question of `ANSWERS` is answered with 200 or 409,
for GET and for POST.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pytest_vllm_gates.shadow.decide import HOLD, PROMOTE, REJECT
from pytest_vllm_gates.shadow.metrics import ShadowCollector
from pytest_vllm_gates.shadow.page import live

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.shadow.watch import CanaryWatch

VERDICT, METRICS, HEALTH = "/-/gates/verdict", "/-/gates/metrics", "/-/gates/health"
PAGE = "/-/gates/page"

ANSWERS: Mapping[str, frozenset[str]] = {
    "/-/gates/is-promoted": frozenset((PROMOTE,)),
    "/-/gates/is-rejected": frozenset((REJECT,)),
    "/-/gates/is-not-rejected": frozenset((PROMOTE, HOLD)),
}
"""Questions, each with the answers for which it is true."""
NO = 409
PAGE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def control_application(watch: CanaryWatch, *, with_page: bool = False) -> web.Application:
    """Return the application of the second port; `with_page` adds the live page."""

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

    async def question(request: web.Request) -> web.Response:
        promotion = (await watch.decision()).promotion
        status = 200 if promotion in ANSWERS[request.path] else NO
        return web.json_response({"promotion": promotion}, status=status)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=live.page(), content_type="text/html", headers=PAGE_HEADERS)

    application = web.Application()
    if with_page:
        application.router.add_get(PAGE, page)
    for path in ANSWERS:
        application.router.add_get(path, question)
        application.router.add_post(path, question)
    application.router.add_get(VERDICT, verdict)
    application.router.add_get(METRICS, metrics)
    application.router.add_get(HEALTH, health)
    return application


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
