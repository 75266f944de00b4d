"""The page in a real browser: read from disk by anybody, on any screen, on paper, by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.report.html import page as pages
from report.documents import HOSTILE, REJECT, THEIRS, empty, huge, load, spoilt
from report.html.conftest import NARROW, WIDE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from report.html.conftest import Seen

    Opened = Callable[..., Seen]

pytestmark = pytest.mark.browser

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
def test_it_opens_from_disk_and_asks_for_nothing(
    opened: Opened, report: Path, scheme: str, width: int
) -> None:
    seen = opened(color_scheme=scheme, width=width)
    assert seen.requests == [report.as_uri()]
    assert seen.messages == []
    assert seen.page.title() == "REJECT: cpu against cpu-previous"
    assert "REJECT" in seen.page.inner_text("h1")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_others_write_is_run_or_shown_as_ours(
    opened: Opened, tmp_path: Path, text: str
) -> None:
    documents = [spoilt(load(name), text) for name in (REJECT, THEIRS)]
    path = pages.write(tmp_path, *documents)
    seen = opened(path, width=NARROW)
    seen.page.evaluate(OPEN_ALL)
    assert seen.requests == [path.as_uri()]
    assert seen.messages == []
    assert seen.page.locator("h1").count() == 1
    assert seen.page.locator("script, img, [onmouseover], [onerror]").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= NARROW


def test_the_page_itself_lets_nothing_in(opened: Opened, tmp_path: Path) -> None:
    """Were something of others' to get through, the browser still would not run or fetch it."""
    path = pages.write(tmp_path, empty())
    let_in = "<script>document.title='run'</script><img src='http://127.0.0.1:9/x'>"
    path.write_text(path.read_text(encoding="utf-8").replace("</main>", f"{let_in}</main>"))
    seen = opened(path)
    assert seen.page.title() == "HOLD: cpu"
    assert sum("Content Security Policy" in message for message in seen.messages) == 2


@pytest.mark.parametrize("width", [320, NARROW, 768, WIDE])
def test_it_fits_the_screen(opened: Opened, width: int) -> None:
    seen = opened(width=width)
    seen.page.evaluate(OPEN_ALL)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe_finds_nothing(opened: Opened, scheme: str, width: int) -> None:
    """WCAG 2.2 AA and best practices: names, roles, order of headings, contrast, target sizes."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    seen = opened(color_scheme=scheme, width=width)
    seen.page.evaluate(OPEN_ALL)
    found: dict[str, Any] = axe.run(seen.page).response
    assert [
        (
            violation["id"],
            violation["nodes"][0]["html"][:200],
            violation["nodes"][0]["failureSummary"],
        )
        for violation in found["violations"]
    ] == []
    assert len(found["passes"]) > 20


def test_the_themes_are_not_one(opened: Opened) -> None:
    colours = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened(color_scheme=entry).page.evaluate(colours) for entry in ("light", "dark"))
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")


def test_the_keyboard_reaches_and_opens_every_fold(opened: Opened) -> None:
    page = opened().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
    whole = page.locator("details").count()
    assert whole > 20
    for _ in range(3000):
        page.keyboard.press("Tab")
        tag = page.evaluate("document.activeElement.tagName")
        if tag == "BODY":
            break
        if tag == "SUMMARY" and not page.evaluate("document.activeElement.parentNode.open"):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == whole


def test_on_paper_everything_is_open(opened: Opened) -> None:
    page = opened().page
    assert page.evaluate(HIDDEN_DETAILS) > 0
    page.emulate_media(media="print")
    assert page.evaluate(HIDDEN_DETAILS) == 0
    assert not page.locator("nav").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_who_wants_no_motion_gets_none(opened: Opened) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert opened(reduced_motion="reduce").page.evaluate(behaviour) == "auto"
    assert opened(reduced_motion="no-preference").page.evaluate(behaviour) == "smooth"


def test_a_gate_leads_to_its_failure(opened: Opened) -> None:
    page = opened(reduced_motion="reduce").page
    page.click("table.gates a:text-is('throughput')")
    target = page.locator(":target")
    assert "Is as fast as the other lane" in target.inner_text()
    assert target.evaluate("one => one.getBoundingClientRect().top") < 900


def test_what_is_folded_opens_where_a_link_leads(opened: Opened) -> None:
    page = opened().page
    page.click("section:has(h2:text('glm')) table.gates a:text-is('isolation')")
    assert page.locator(":target").evaluate("one => one.checkVisibility()")


def test_drawings_are_named_and_have_a_size(opened: Opened) -> None:
    page = opened(width=NARROW).page
    page.evaluate(OPEN_ALL)
    for drawing in page.locator("svg.drawing").all():
        assert len(drawing.get_attribute("aria-label") or "") > 20
        box = drawing.bounding_box()
        assert box and box["width"] > 200 and box["height"] > 20


def test_a_huge_page_is_still_read(opened: Opened, tmp_path: Path) -> None:
    path = pages.write(tmp_path, huge())
    assert path.stat().st_size < 2_000_000
    seen = opened(path, width=NARROW)
    assert seen.messages == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= NARROW
