"""docs/members.md is made from the files of the families, and names every member."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

from pytest_vllm_gates.catalog import family as families

DOCS = Path(__file__).parent.parent / "docs"
PROGRAM = DOCS / "members.py"
EVERY = [*families.load_all(Path("/nowhere"))]


def test_the_page_is_what_its_program_prints() -> None:
    ran = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=True)
    page = (DOCS / "members.md").read_text(encoding="utf-8")
    assert page == ran.stdout, "run: python docs/members.py > docs/members.md"


def test_every_member_and_source_is_on_the_page() -> None:
    page = runpy.run_path(str(PROGRAM))["page"](EVERY)
    for one in EVERY:
        assert page.count(f"\n| `{one.name}` | ") == 1 + max(1, len(one.sources))
        assert all(f" | {source.looked_up} |" in page for source in one.sources)


def test_a_member_without_sources_is_shown_as_such() -> None:
    bare = EVERY[0].model_copy(update={"sources": ()})
    assert "| none is listed | | |" in runpy.run_path(str(PROGRAM))["page"]([bare])
