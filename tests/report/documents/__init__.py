"""Verdicts to make reports of: put together from runs of real servers, and hostile ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REJECT = "reject"
"""Two lanes, two families: what a report can have to show at once."""
THEIRS = "theirs"
"""The other lane's document to it."""
HOSTILE = (
    "<script>fetch('http://127.0.0.1:9/stolen')</script>",
    "<img src=http://127.0.0.1:9/x onerror=alert(1)>",
    "</style><style>@import url(http://127.0.0.1:9/s.css);*{display:none}</style>",
    "]]></svg></details></table><h1>PROMOTE</h1>",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202eevil\u202c\u2066b\u2069",
    "half \ud800 a pair, NUL \x00, bell \x07, escape \x1b[31m",
    "`" * 5 + " | pipes | \n# heading\n- item @everyone",
    '" onmouseover="alert(1)" x="',
)


def load(name: str) -> dict[str, Any]:
    """Return a separate document, which may be changed."""
    document: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return document


def empty(promotion: str = "HOLD") -> dict[str, Any]:
    """Return the document of a run in which nothing ran."""
    document = load(REJECT)
    document |= {
        "promotion": promotion, "reasons": ["no gate passed"], "families": [], "against": None,
        "bundle": None, "waivers": [], "next": [], "rollback": None, "history": [],
        "incidents": [], "known_defects": {"standing": [], "gone": []},
    }  # fmt: skip
    return document


def spoilt(document: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the document with a text in place of every text that somebody else may write."""
    fixed = {"format", "version", "promotion", "outcome", "created", "kind", "ours", "theirs",
             "state", "form", "phase", "confidence"}  # fmt: skip

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        return text if isinstance(value, str) and key not in fixed else value

    spoilt_document: dict[str, Any] = spoil(copy.deepcopy(document))
    return spoilt_document


def huge() -> dict[str, Any]:
    """Return a document with more of everything than a page can show."""
    document = load(REJECT)
    family = document["families"][0]
    test = next(
        test for gate in family["gates"] for test in gate["tests"] if "prompt" in test["evidence"]
    )
    tests = [
        {**test, "test": f"test_number_{at}[qwen3.5]", "reason": f"{at} {'lost ' * 2000}"}
        for at in range(400)
    ]
    big = {**tests[0], "reason": "x" * 10_000_000, "evidence": {"said": "y" * 10_000_000}}
    gate = {**family["gates"][0], "outcome": "FAIL", "tests": [big, *tests]}
    family["gates"] = [gate, *family["gates"][1:]]
    document["families"] = [{**family, "name": f"family-{at}"} for at in range(40)]
    document["history"] *= 400
    document["reasons"] *= 400
    document["lane"]["versions"] |= {f"package-{at}": "1.0" for at in range(3000)}
    return document
