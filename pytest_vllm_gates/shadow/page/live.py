"""Composes the live page as one file: style and script are inlined, and it loads nothing else.

It requests the verdict's document from the second port every few seconds, and shows it.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

HERE = Path(__file__).parent
PARTS = {"STYLE": "live.css", "SCRIPT": "live.js"}


def page() -> str:
    """Return the page. Its script inserts foreign text as text only, never as markup."""
    html = (HERE / "live.html").read_text(encoding="utf-8")
    for mark, content in {**_contents(), "POLICY": policy()}.items():
        html = html.replace(f"@{mark}@", content, 1)
    return html


def policy() -> str:
    """Return the page's content security policy: its own script, its own style, its own server."""
    hashes = {
        mark: base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for mark, content in _contents().items()
    }
    return (
        f"default-src 'none'; script-src 'sha256-{hashes['SCRIPT']}'; "
        f"style-src 'sha256-{hashes['STYLE']}'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'"
    )


def _contents() -> dict[str, str]:
    return {mark: (HERE / name).read_text(encoding="utf-8") for mark, name in PARTS.items()}
