"""Each gate's page of the documentation, as a part of the report.

The pages are `docs/gates/` of the repository; the wheel has them as `gate_pages/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_vllm_gates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from markdown_it.token import Token
    from markupsafe import Markup

PACKAGE = Path(pytest_vllm_gates.__file__).parent
FOLDERS = (PACKAGE / "gate_pages", PACKAGE.parent / "docs" / "gates")
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
SCROLLING = {
    "<pre>": '<pre tabindex="0">',
    "<table>": '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>',
    "</table>": "</table></div>",
}
"""A table that is wider than the screen scrolls separately, with the keyboard, too."""
LOWER = 2
"""Headings of a page are below the levels of the report's headings."""
LOWEST = 6


@dataclass(frozen=True)
class GatePage:
    """One gate's page."""

    gate: str
    anchor: str
    html: Markup


def pages(gates: Iterable[str]) -> list[GatePage]:
    """Return the gates' pages, each once; gates without a page are skipped."""
    found = []
    for at, gate in enumerate(dict.fromkeys(gates)):
        if NAME.fullmatch(gate) and (html := _page(gate)):
            found.append(GatePage(gate, f"about-{at}", html))
    return found


@cache
def _page(gate: str) -> Markup | None:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - heavy
    from markupsafe import Markup  # noqa: PLC0415

    for folder in FOLDERS:
        try:
            text = (folder / f"{gate}.md").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        parser = MarkdownIt("commonmark", {"html": False}).enable("table")
        tokens = [token for token in parser.parse(text) if token.type != "html_block"]
        shown = list(_shown(tokens))
        html = parser.renderer.render(shown, parser.options, {})
        for plain, scrolling in SCROLLING.items():
            html = html.replace(plain, scrolling)
        return Markup(html)  # noqa: S704 - the package's own page
    return None


def _shown(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield a page's tokens without its title, with its headings lowered."""
    title = False
    for token in tokens:
        if token.tag == "h1":
            title = token.type == "heading_open"
            continue
        if title:
            continue
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(LOWEST, int(token.tag[1]) + LOWER)}"
        token.attrs.pop("style", None)  # the page allows no style but its own
        if token.children:
            token.children = list(_linked(token.children))
        yield token


def _linked(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield tokens in which links to other pages of the documentation are plain text."""
    outside = False
    for token in tokens:
        if token.type == "link_open":
            outside = str(token.attrs.get("href", "")).startswith("https://")
            if outside:
                token.attrs = {"href": token.attrs["href"], "rel": "noreferrer"}
                yield token
        elif token.type == "link_close":
            if outside:
                yield token
        elif token.type != "image":
            yield token
