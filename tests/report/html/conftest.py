"""A real headless Chromium, for tests that need a browser."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import written

from pytest_vllm_gates.report.html import page as pages
from report.documents import REJECT, THEIRS, load
from report.documents.figures import with_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = 1200, 360


@dataclass
class OpenedPage:
    """A page in a browser, with its requests and messages."""

    page: Page
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium; it ends with the file, for its event loop runs in this thread."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("Chromium is not installed on this machine: apt-get install chromium")
    with api.sync_playwright() as playwright:
        # Root, as in containers, has no sandbox.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two lanes, with all it can have to show, as a file."""
    folder = tmp_path_factory.mktemp("report")
    document = with_figures(load(REJECT))
    document["incidents"][0]["path"] = written(folder).name
    log = folder / "qwen3.5" / "server.log"
    log.parent.mkdir()
    log.write_text("up\n")
    document["families"][0]["boot"]["evidence"]["log"] = str(log)
    return pages.write(folder, document, with_figures(load(THEIRS), each=0.01, mean=0.03))


@pytest.fixture
def opened(chromium: Browser, report: Path) -> Iterator[Callable[..., OpenedPage]]:
    """Open a page from disk, the report where no other is named."""
    contexts = []

    def open_page(path: Path = report, *, width: int = WIDE, **options: Any) -> OpenedPage:
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **options))
        opened_page = OpenedPage(contexts[-1].new_page())
        opened_page.page.on("request", lambda request: opened_page.requests.append(request.url))
        opened_page.page.on("console", lambda message: opened_page.messages.append(message.text))
        opened_page.page.on("pageerror", lambda error: opened_page.messages.append(str(error)))
        opened_page.page.goto(path.as_uri())
        return opened_page

    yield open_page
    for context in contexts:
        context.close()
