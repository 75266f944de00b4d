"""docs/families.md names every family that ships, its members, checkpoints and architectures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints import miniatures

PAGE = (Path(__file__).parent.parent / "docs" / "families.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^### `([^`]+)`", PAGE, re.MULTILINE)
EVERY = list(families.load_all(Path("/nowhere")))


def row_of(name: str) -> str:
    """Return the row of a member's table."""
    (row,) = re.findall(rf"^\| `{re.escape(name)}` ?[^|]*\|.*$", _of_members(), re.MULTILINE)
    return str(row)


def _of_members() -> str:
    return PAGE.partition("## How `--model` finds one")[0]


@pytest.mark.parametrize("one", EVERY, ids=lambda entry: entry.name)
def test_a_member_has_a_row_with_its_checkpoints(one: families.Family) -> None:
    cells = [cell.strip() for cell in row_of(one.name).strip("|").split("|")]
    assert cells[2].split(", ") == [checkpoint.name for checkpoint in one.checkpoints]
    if "the same" not in cells[1]:
        assert re.findall(r"`(\w+)`", cells[1]) == list(one.architectures)


def test_no_other_member_has_a_row() -> None:
    rows = re.findall(r"^\| `([^`]+)`", _of_members(), re.MULTILINE)
    assert rows == [
        entry.name
        for family in SECTIONS
        for entry in EVERY
        if entry.name.partition("/")[0] == family
    ]


def test_every_miniature_has_a_row_and_every_row_is_one() -> None:
    rows = re.findall(r"^\| `([^`]+)`", PAGE.partition("## Miniatures")[2], re.MULTILINE)
    with_one = [
        family.name
        for family in EVERY
        if any(checkpoint.miniature for checkpoint in family.checkpoints)
    ]
    assert sorted(rows) == sorted(with_one)
    assert len(rows) == len(miniatures.names())


@pytest.mark.parametrize("one", EVERY, ids=lambda entry: entry.name)
def test_the_parsers_of_a_family_are_named(one: families.Family) -> None:
    for flag in ("reasoning_parser", "tool_call_parser"):
        parser = one.serve.get(flag)
        assert parser is None or f"`{parser}`" in PAGE


def test_every_report_that_the_page_names_is_one_of_the_families() -> None:
    told = {gotcha.reference for family in EVERY for gotcha in family.gotchas}
    told |= {defect.reference for family in EVERY for defect in family.known_defects}
    named = set(re.findall(r"vllm#\d+", PAGE))
    assert named
    assert {f"vllm-project/{entry}" for entry in named} <= told
