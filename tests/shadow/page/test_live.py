"""The live page shows the document in a real browser, loads nothing else, and notices an end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from report.documents import HOSTILE
from report.html.conftest import (  # noqa: F401 - a fixture
    NARROW,
    WIDE,
    OpenedPage,
    chromium,
)

from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.control import PAGE, control_application
from pytest_vllm_gates.shadow.copies import MirrorCounts
from pytest_vllm_gates.shadow.decide import Question
from pytest_vllm_gates.shadow.judging import JudgeProcess
from pytest_vllm_gates.shadow.page import live
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement
from pytest_vllm_gates.shadow.watch import CanaryWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

FIGURES = {"ttft_s": 0.1, "itl_s": 0.02, "tokens": 40.0}
WAIT_MS = 120_000
"""A busy machine takes long to open a page."""


def judged(sentence: str = "") -> PairJudgement:
    """Return a pair; with a sentence the canary's answer is broken."""
    broken = {"framing": sentence} if sentence else {}
    return PairJudgement(SideJudgement(figures=FIGURES), SideJudgement(broken, FIGURES))


def fresh_watch() -> CanaryWatch:
    judge = JudgeProcess(None, Path())
    targets = {"stable": "http://stable", "canary": "http://canary"}
    return CanaryWatch(
        shadow_settings.load(), Question(), MirrorCounts(), judge, targets, lambda text: text
    )


@contextlib.contextmanager
def served(watch: CanaryWatch, *, with_page: bool = True) -> Iterator[str]:
    """Serve a second port from another thread; give its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(control_application(watch, with_page=with_page))

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return "http://{}:{}".format(*runner.addresses[0][:2])

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@contextlib.contextmanager
def opened(browser: Browser, url: str, width: int = WIDE) -> Iterator[OpenedPage]:
    """Open the page and wait until it shows the document."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    try:
        found = OpenedPage(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.messages.append(message.text))
        found.page.on("pageerror", lambda error: found.messages.append(str(error)))
        found.page.goto(url + PAGE, timeout=WAIT_MS)
        shows(found.page, "document.querySelectorAll('#kinds tr').length > 0")
        yield found
    finally:
        context.close()


def shows(page: Page, condition: str) -> None:
    """Wait until a condition is true of the page. `eval` is what its policy forbids: poll."""
    for _ in range(WAIT_MS // 100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(page.inner_text("main"))


def test_page_loads_nothing_from_outside() -> None:
    text = live.page()
    assert "@" not in text.replace("@media", "")
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.browser
def test_page_follows_the_shadow(chromium: Browser) -> None:  # noqa: F811
    watch = fresh_watch()
    for _ in range(30):
        watch.count(judged())
    with served(watch) as url, opened(chromium, url) as found:
        assert found.page.inner_text("h1") == "KEEP WATCHING"
        assert "30 pairs judged" in found.page.inner_text("#progress")
        assert found.page.locator("#figures tr").count() == 5
        assert found.page.locator("#no-failures").is_visible()
        for _ in range(2):
            watch.count(judged("the stream has no [DONE]"))
        shows(found.page, "document.querySelector('h1').textContent === 'REJECT'")
        assert found.page.title() == "REJECT: shadow"
        assert found.page.inner_text("#failures") == "framing: the stream has no [DONE]"
        framing = found.page.locator("#kinds tr", has_text="framing").inner_text()
        assert "6.25 %" in framing and "rejected" in framing
        assert found.messages == []
        assert {request.rpartition("/")[0] for request in found.requests} == {f"{url}/-/gates"}


@pytest.mark.browser
def test_page_reports_that_the_shadow_is_gone(chromium: Browser) -> None:  # noqa: F811
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(served(fresh_watch()))
        found = stack.enter_context(opened(chromium, url))
        assert not found.page.locator("#stale").is_visible()
        found.page.route("**/verdict", lambda route: route.abort())
        shows(found.page, "!document.getElementById('stale').hidden")
        assert "does not answer" in found.page.inner_text("#stale")
        found.page.unroute("**/verdict")
        shows(found.page, "document.getElementById('stale').hidden")


@pytest.mark.browser
def test_foreign_text_is_text(chromium: Browser) -> None:  # noqa: F811
    watch = fresh_watch()
    kinds = list(watch.tally.kinds)[: len(HOSTILE)]
    for kind, text in zip(kinds, HOSTILE, strict=True):
        for _ in range(2):
            watch.count(PairJudgement(canary=SideJudgement({kind: text})))
    with served(watch) as url, opened(chromium, url, NARROW) as found:
        assert found.page.locator("#failures li").count() == len(HOSTILE)
        assert found.page.locator("img, [onmouseover], [onerror]").count() == 0
        assert found.page.locator("script").count() == 1
        assert found.page.locator("h1").count() == 1
        assert found.page.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert found.messages == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, WIDE])
def test_page_fits_the_screen_and_can_be_read_aloud(
    chromium: Browser,  # noqa: F811
    width: int,
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    watch = fresh_watch()
    for _ in range(3):
        watch.count(judged("the stream has no [DONE]"))
    with served(watch) as url, opened(chromium, url, width) as found:
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        report: dict[str, Any] = axe.run(found.page).response
        assert [each["id"] for each in report["violations"]] == []


def test_page_is_not_served_by_default() -> None:
    paths = {
        with_page: {
            route.resource.canonical
            for route in control_application(fresh_watch(), with_page=with_page).router.routes()
            if route.resource
        }
        for with_page in (False, True)
    }
    assert paths[True] - paths[False] == {PAGE}
