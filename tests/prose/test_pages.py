"""Every page is written plainly: subject first, one idea a clause, the task first."""

from __future__ import annotations

from pathlib import Path

import pytest

from prose import rules, sentences

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
HOW_TO = [
    DOCS / f"{name}.md"
    for name in (
        "tutorial", "running", "faq", "explain", "incidents", "accepting", "bisect", "shadow",
        "warmup", "ci", "fleet", "kept-servers", "lanes", "other-servers", "preflight", "backends",
        "memory-plan", "adding", "secrets", "contributing",
    )
]  # fmt: skip
MOST_BANNED, MOST_RELATIVE, LEAST_INSTRUCTING = 0.01, 0.02, 0.25
"""Shares of sentences; uv's and pytest's docs have 0.1 %, 1.5 %, and 34 and 18 %."""
FEW = 50
"""A page of fewer sentences may have one of a kind."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_has_few_hard_sentences(page: Path) -> None:
    found = sentences.of(page)
    shares = rules.shares(found)
    one = 1 / max(len(found), 1) if len(found) < FEW else 0.0
    hard = [text for _, text in found if rules.banned(text) or rules.relative(text)]
    assert shares.banned <= max(MOST_BANNED, one), hard
    assert shares.relative <= max(MOST_RELATIVE, one), hard


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_how_to_page_instructs(page: Path) -> None:
    assert rules.shares(sentences.of(page)).instructing >= LEAST_INSTRUCTING


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The log says why.", "says"),
        ("It stands in the file.", "stands"),
        ("This is no answer.", "is no answer"),
        ("It is told otherwise than before.", "told"),
        ('The code `says` it, and "he said so".', None),
        ("The verdict is HOLD.", None),
        ("A threshold is no longer needed.", None),
    ],
)
def test_banned_words_are_found_outside_code_and_quotations(text: str, word: str | None) -> None:
    assert rules.banned(text) == word


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What is spelled as a path is a folder.", True),
        ("Where it fails, it stops.", True),
        ("What is a lane?", False),
        ("If it fails, it stops.", False),
    ],
)
def test_relative_beginnings_are_found(text: str, found: bool) -> None:
    assert rules.relative(text) is found


def test_page_is_split_into_sentences(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What is no sentence\n\nTo run it, type `a. B`. It ends, i.e. it stops.\n\n"
        "- One item here\n\n| one cell | Another cell. And more text |\n| --- | --- |\n\n"
        "```\ncode here\n```\n"
    )
    assert [text for _, text in sentences.of(page)] == [
        "To run it, type `a. B`.",
        "It ends, i.e. it stops.",
        "One item here",
        "one cell",
        "Another cell.",
        "And more text",
    ]
