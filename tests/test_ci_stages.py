"""CI names the files of a stage by a search for their mark: it is written where that finds it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
MARK = re.compile(r"mark\.(real|alone)\b")
ADDED = re.compile(r"add_marker\((.*)\)|getattr\((?:pytest\.)?mark, *(.*)\)")


def texts() -> dict[str, str]:
    return {
        path.relative_to(TESTS).as_posix(): path.read_text(encoding="utf-8")
        for path in TESTS.rglob("*.py")
    }


def test_marks_of_stages_are_written_in_test_files_alone() -> None:
    marked = {name for name, text in texts().items() if MARK.search(text)}
    assert {"faults/test_ranks.py", "redaction/test_linear.py"} <= marked
    assert [name for name in marked if not Path(name).name.startswith("test_")] == []


def test_no_mark_of_a_stage_is_added_to_a_collected_test() -> None:
    added = {
        "".join(match.groups(""))
        for name, text in texts().items()
        if name != Path(__file__).name
        for match in ADDED.finditer(text)
    }
    assert added == {"pytest.mark.flaky(reruns=1)"}
