"""The page's script searches, filters, opens and copies in a real browser; none of it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.report.html import page as pages
from report.documents import HOSTILE, REJECT, empty, load, spoilt
from report.html.conftest import NARROW

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from report.html.conftest import OpenedPage

    Opened = Callable[..., OpenedPage]

pytestmark = pytest.mark.browser

VISIBLE = """
() => [...document.querySelectorAll('details.entry')].filter(one => one.checkVisibility())
  .map(one => [one.dataset.family, one.dataset.gate, one.dataset.outcome].join(' '))
"""


def visible(page: Page) -> list[str]:
    """Return family, gate and outcome of each entry that is seen."""
    found: list[str] = page.evaluate(VISIBLE)
    return found


def searched(page: Page, words: str, counts: str) -> None:
    """Search, and wait for the count: the page's policy forbids waiting by a script's text."""
    page.fill("#find-text", words)
    page.locator("#find-count", has_text=counts).wait_for()


def test_outcome_filter_shows_only_its_tests(opened: Opened) -> None:
    page = opened().page
    page.select_option("#find-outcome", "KNOWN")
    found = visible(page)
    assert found
    assert {line.rpartition(" ")[2] for line in found} == {"KNOWN"}
    assert page.inner_text("#find-count").startswith(f"{len(found)} of ")
    assert not page.locator("section:has(h2:text('glm')).family").is_visible()


def test_filters_combine_and_can_be_taken_back(opened: Opened) -> None:
    page = opened(width=NARROW).page
    before, count = visible(page), page.inner_text("#find-count")
    page.select_option("#find-family", "qwen3.5")
    page.select_option("#find-gate", "load")
    page.select_option("#find-outcome", "PASS")
    assert set(visible(page)) == {"qwen3.5 load PASS"}
    for name in ("family", "gate", "outcome"):
        page.select_option(f"#find-{name}", "")
    assert visible(page) == before
    assert page.inner_text("#find-count") == count


def test_search_finds_words_of_evidence(opened: Opened) -> None:
    page = opened().page
    searched(page, "tolerance_nats 0.02", " of ")
    assert set(visible(page)) == {"qwen3.5 numerics PASS"}
    searched(page, "no such word anywhere", "0 of ")
    assert visible(page) == []


def test_copy_takes_the_text_and_nothing_else(opened: Opened) -> None:
    opened_page = opened(permissions=["clipboard-read", "clipboard-write"])
    page = opened_page.page
    box = page.locator("#why .copyable").first
    box.locator("button").click()
    box.locator("button:text('Copied')").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == box.locator("pre").inner_text()
    assert opened_page.messages == []


def test_copy_without_a_clipboard_selects_the_text(opened: Opened) -> None:
    page = opened().page
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    box = page.locator("#why .copyable").first
    box.locator("button").click()
    box.locator("button:text-matches('Copied|Selected')").wait_for()
    assert page.evaluate("getSelection().toString()").strip() == box.locator("pre").inner_text()


def test_recorded_requests_open_and_are_laid_out(opened: Opened) -> None:
    page = opened().page
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
    exchange = page.locator("details.exchange").first
    exchange.evaluate("one => one.closest('.entry').open = true")
    exchange.locator("summary").first.click()
    exchange.locator("summary:text-is('Request')").click()
    shown = exchange.locator("pre").first.inner_text()
    assert '"role": "user"' in shown
    assert shown.count("\n") > 5


def test_a_passed_test_opens_by_its_link(opened: Opened) -> None:
    page = opened(reduced_motion="reduce").page
    page.click("table.gates a:text-is('numerics')")
    target = page.locator(":target")
    assert target.evaluate("one => one.open && one.checkVisibility()")
    assert "tolerance_nats" in target.inner_text() or target.locator("summary").count() > 1


def test_gate_page_and_log_are_linked(opened: Opened) -> None:
    page = opened(reduced_motion="reduce").page
    assert page.locator('a:text-is("The server\'s log")').first.get_attribute("href") == (
        "qwen3.5/server.log"
    )
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.click("a:text-is('What load judges') >> nth=0")
    assert "Under the load it is planned for" in page.locator(":target").inner_text()


def test_page_is_readable_without_its_script(opened: Opened) -> None:
    opened_page = opened(java_script_enabled=False)
    page = opened_page.page
    assert opened_page.messages == []
    assert not page.locator("#find").is_visible()
    assert page.locator("button").count() == 0
    assert page.locator("h2:text-is('Numbers')").is_visible()
    fold = page.locator("details.others > summary").first
    fold.click()
    entry = page.locator("details.others > .entry > summary").first
    entry.click()
    assert page.locator("details.others > .entry .body").first.is_visible()


def test_numbers_are_drawn_for_both_lanes(opened: Opened) -> None:
    page = opened(width=NARROW).page
    for style in ("ours", "theirs"):
        drawn = page.locator(f"#numbers .bar.{style}")
        assert drawn.count() > 10
        assert drawn.first.evaluate("one => one.getBoundingClientRect().width") > 0
    lines = page.locator("#numbers polyline")
    assert lines.count() >= 6
    assert lines.first.evaluate("one => getComputedStyle(one).stroke") != "none"


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_search_over_foreign_text_runs_nothing(opened: Opened, tmp_path: Path, text: str) -> None:
    path = pages.write(tmp_path, spoilt(load(REJECT), text))
    opened_page = opened(path)
    page = opened_page.page
    searched(page, text.partition("\n")[0].replace("\ud800", "").replace("\x00", ""), " of ")
    for name in ("family", "gate"):
        page.select_option(f"#find-{name}", index=1)
    assert opened_page.messages == []
    assert opened_page.requests == [path.as_uri()]
    assert page.locator("h1").count() == 1


def test_a_run_without_tests_has_no_search(opened: Opened, tmp_path: Path) -> None:
    opened_page = opened(pages.write(tmp_path, empty()))
    assert opened_page.page.locator("#find").count() == 0
    assert opened_page.messages == []
