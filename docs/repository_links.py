"""mkdocs's hook: a link to a file outside `docs/` becomes its place in the repository.

The site has no such file, and no address of the repository to point to. A link to what is not there
is left alone, for mkdocs to complain of.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\.[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Return the page with its links to the repository spelt out."""
    docs = Path(config.docs_dir).resolve()

    def spelt(link: re.Match[str]) -> str:
        target = (docs / Path(page.file.src_uri).parent / link[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]
        return f"{link[1]} (`{target.relative_to(docs.parent)}`)"

    return LINK.sub(spelt, markdown)
