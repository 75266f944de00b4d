"""The page works in a real browser: on any screen, on paper, by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.report.html import page as pages
from report.documents import HOSTILE, REJECT, THEIRS, empty, huge, load, spoilt
from report.html.conftest import NARROW, WIDE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from report.html.conftest import OpenedPage

    Opened = Callable[..., OpenedPage]

pytestmark = pytest.mark.browser

OWN_SCRIPT = (pages.HERE / "script.js").read_text(encoding="utf-8")
OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"
HIDDEN_DETAILS = """
() => [...document.querySelectorAll('details > :not(summary)')]
  .filter(one => !one.checkVisibility({contentVisibilityAuto: true})).length
"""
TOO_WIDE = """
() => [...document.querySelectorAll('main *')].filter(one => {
  const box = one.getBoundingClientRect()
  return box.right > innerWidth + 1 && !one.closest('.scroll, .hidden, pre, .tokens')
}).map(one => one.tagName + '.' + one.className)
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_page_opens_from_disk_without_requests(
    opened: Opened, report: Path, scheme: str, width: int
) -> None:
    opened_page = opened(color_scheme=scheme, width=width)
    assert opened_page.requests == [report.as_uri()]
    assert opened_page.messages == []
    assert opened_page.page.title() == "REJECT: cpu against cpu-previous"
    assert "REJECT" in opened_page.page.inner_text("h1")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_foreign_text_is_neither_run_nor_rendered(
    opened: Opened, tmp_path: Path, text: str
) -> None:
    documents = [spoilt(load(name), text) for name in (REJECT, THEIRS)]
    path = pages.write(tmp_path, *documents)
    opened_page = opened(path, width=NARROW)
    opened_page.page.evaluate(OPEN_ALL)
    assert opened_page.requests == [path.as_uri()]
    assert opened_page.messages == []
    assert opened_page.page.locator("h1").count() == 1
    assert opened_page.page.locator("img, [onmouseover], [onerror]").count() == 0
    assert [node.inner_text() for node in opened_page.page.locator("script").all()] == [OWN_SCRIPT]
    assert opened_page.page.evaluate("document.documentElement.scrollWidth") <= NARROW


def test_page_blocks_scripts_by_its_policy(opened: Opened, tmp_path: Path) -> None:
    """Were something of others' to get through, the browser still would not run or fetch it."""
    path = pages.write(tmp_path, empty())
    let_in = "<script>document.title='run'</script><img src='http://127.0.0.1:9/x'>"
    path.write_text(path.read_text(encoding="utf-8").replace("</main>", f"{let_in}</main>"))
    opened_page = opened(path)
    assert opened_page.page.title() == "HOLD: cpu"
    assert sum("Content Security Policy" in message for message in opened_page.messages) == 2


@pytest.mark.parametrize("width", [320, NARROW, 768, WIDE])
def test_page_fits_the_screen(opened: Opened, width: int) -> None:
    opened_page = opened(width=width)
    opened_page.page.evaluate(OPEN_ALL)
    assert opened_page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened_page.page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe_finds_no_violations(opened: Opened, scheme: str, width: int) -> None:
    """WCAG 2.2 AA and best practices: names, roles, order of headings, contrast, target sizes."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    opened_page = opened(color_scheme=scheme, width=width)
    opened_page.page.evaluate(OPEN_ALL)
    report: dict[str, Any] = axe.run(opened_page.page).response
    assert [
        (
            violation["id"],
            violation["nodes"][0]["html"][:200],
            violation["nodes"][0]["failureSummary"],
        )
        for violation in report["violations"]
    ] == []
    assert len(report["passes"]) > 20


def test_light_and_dark_themes_differ(opened: Opened) -> None:
    colours = "getComputedStyle(document.body).backgroundColor"
    light, dark = (
        opened(color_scheme=scheme).page.evaluate(colours) for scheme in ("light", "dark")
    )
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")


def test_keyboard_reaches_and_opens_every_fold(opened: Opened) -> None:
    page = opened().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
    folds = page.locator("details").count()
    assert folds > 20
    for _ in range(3000):
        page.keyboard.press("Tab")
        tag = page.evaluate("document.activeElement.tagName")
        if tag == "BODY":
            break
        if tag == "SUMMARY" and not page.evaluate("document.activeElement.parentNode.open"):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == folds


def test_print_opens_every_fold(opened: Opened) -> None:
    page = opened().page
    assert page.evaluate(HIDDEN_DETAILS) > 0
    page.emulate_media(media="print")
    page.wait_for_function(f"() => ({HIDDEN_DETAILS})() === 0")  # the page is notified after us
    assert not page.locator("nav").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_reduced_motion_is_respected(opened: Opened) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert opened(reduced_motion="reduce").page.evaluate(behaviour) == "auto"
    assert opened(reduced_motion="no-preference").page.evaluate(behaviour) == "smooth"


def test_gate_links_to_its_failure(opened: Opened) -> None:
    page = opened(reduced_motion="reduce").page
    page.click("table.gates a:text-is('throughput')")
    target = page.locator(":target")
    assert "Is as fast as the other lane" in target.inner_text()
    assert target.evaluate("one => one.getBoundingClientRect().top") < 900


def test_link_opens_the_fold_it_leads_to(opened: Opened) -> None:
    page = opened().page
    page.click("section:has(h2:text('glm')) table.gates a:text-is('isolation')")
    assert page.locator(":target").evaluate("one => one.checkVisibility()")


def test_drawings_have_a_label_and_a_size(opened: Opened) -> None:
    page = opened(width=NARROW).page
    page.evaluate(OPEN_ALL)
    for drawing in page.locator("svg.drawing").all():
        assert len(drawing.get_attribute("aria-label") or "") > 20
        box = drawing.bounding_box()
        assert box and box["width"] > 200 and box["height"] > 20


def test_huge_page_is_readable(opened: Opened, tmp_path: Path) -> None:
    path = pages.write(tmp_path, huge())
    assert path.stat().st_size < 2_000_000
    opened_page = opened(path, width=NARROW)
    assert opened_page.messages == []
    assert opened_page.page.evaluate("document.documentElement.scrollWidth") <= NARROW
