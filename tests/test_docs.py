"""The README and the docs: every link leads somewhere, the site builds, nothing is fetched."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")),
    ROOT / "SECURITY.md",
    *sorted(DOCS.rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```$|(`+)[^`].*?\1", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(
    r"""(?:\bsrc=|<link\b[^>]*\bhref=|@import\s+|url\()["']?((?:https?:)?//[^"')\s>]+)"""
)
"""Where a page has a browser fetch something from another host."""
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
MESSAGE = re.compile(r"^## `(.+)`$", re.MULTILINE)
REPORT_BYTES, VERDICT_BYTES = 200_000, 60_000


def anchors(page: Path) -> set[str]:
    """Return a page's anchors, as GitHub makes them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken(page: Path) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [*broken(page)] == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Its `own` title\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    good = "[a](other.md#its-own-title) [b](#here) ![c](other.md) [d](https://x.y) `[e](code)`"
    page.write_text(f"## Here\n{good}\n```\n[f](code)\n```\n")
    assert [*broken(page)] == []
    bad = ["absent.md", "other.md#no-heading", "#there"]
    page.write_text("## Here\n" + " ".join(f"[a]({link})" for link in bad))
    assert [*broken(page)] == bad


def test_every_gate_has_its_page_and_its_row_in_the_table() -> None:
    gates = set(verdict_gates.gate_files())
    assert {page.stem for page in (DOCS / "gates").glob("*.md")} == gates
    rows = re.findall(
        r"^\| \[(\w+)\]\(gates/(\w+)\.md\)", (DOCS / "catches.md").read_text(), re.MULTILINE
    )
    assert {name for name, _ in rows} == gates
    assert all(name == page for name, page in rows)


def built(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d"]
    return subprocess.run(
        [*command, str(folder / "site")], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_site_builds_and_asks_no_other_host(tmp_path: Path) -> None:
    found = built(tmp_path)
    assert found.returncode == 0, found.stderr
    site = tmp_path / "site"
    pages = [*site.rglob("*.html")]
    assert len(pages) > len([*DOCS.rglob("*.md")])  # the search and the 404, too
    for file in [*pages, *site.rglob("*.css")]:
        assert ADDRESS.findall(file.read_text(encoding="utf-8")) == [], file
    assert not [*site.rglob("*.py")]
    assert (
        "(<code>pytest_vllm_gates/data/drift.toml</code>)"
        in (site / "verdict/index.html").read_text()
    )


@pytest.mark.parametrize(
    "link", ["absent.md", "../absent.toml", "other.md#absent", "other", "/other.md"]
)
def test_the_site_does_not_build_with_a_link_that_leads_nowhere(tmp_path: Path, link: str) -> None:
    config = tmp_path / "mkdocs.yml"
    whole = (ROOT / "mkdocs.yml").read_text().replace("docs/", f"{DOCS}/").partition("\nnav:")[0]
    config.write_text(whole)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    (tmp_path / "docs" / "index.md").write_text("# Here\n[x](other.md) [y](../mkdocs.yml)\n")
    if link == "absent.md":
        assert built(tmp_path, config).returncode == 0
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n[x]({link})\n")
    found = built(tmp_path, config)
    assert found.returncode != 0
    assert link in found.stderr


def test_the_pictures_are_small_and_ask_no_other_host() -> None:
    verdict, report = DOCS / "pictures" / "verdict.svg", DOCS / "pictures" / "report.png"
    text = verdict.read_text(encoding="utf-8")
    assert len(text.encode()) < VERDICT_BYTES
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "verdict:" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert report.stat().st_size < REPORT_BYTES


def test_the_picture_has_what_was_printed() -> None:
    program = runpy.run_path(str(DOCS / "pictures" / "terminal.py"))
    printed = [
        "vllm gates: lane cpu",
        "vllm gates: overlay one_repair: left out",
        "qwen3.5: not shown",
        "qwen3.5  boot  PASS            5 tests     32.5 s",
        "qwen3.5  stop  FAIL            5 tests      2.7 s  <why>",
        "",
        "verdict: REJECT",
        "  - " + "long " * 40,
        "  known defects, seen (-v lists each): qwen3.5: stop 1",
        "--- snapshots",
        "= 1 failed =",
    ]
    lines = list(program["shown"](printed, "pytest --model qwen3.5"))
    texts = [text for _, text in lines]
    assert texts[:4] == ["$ pytest --model qwen3.5", "vllm gates: lane cpu", "...", printed[3]]
    assert [colour for colour, _ in lines[3:7]] == ["green", "red", "", "red"]
    assert len(texts[7]) == program["COLUMNS"]
    assert lines[8] == ("yellow", printed[8])
    assert texts[9:] == ["", "= 1 failed ="]
    assert "&lt;why&gt;" in program["drawn"](lines)


def test_the_faqs_errors_are_the_programs_own() -> None:
    package = ROOT / "pytest_vllm_gates"
    source = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    source = re.sub(r'"\n\s*f?"', "", source)  # one text over several lines
    messages = MESSAGE.findall((DOCS / "faq.md").read_text(encoding="utf-8"))
    assert len(messages) == 10
    for message in messages:
        for part in message.split(" … "):
            assert part in source, message
