"""A cause that many checks share is reported once, at the top of the page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.report.html.causes import causes
from pytest_vllm_gates.report.html.drawing import TextLimits
from report.documents import REJECT, empty, load
from report.html.test_page import JUNK, checked

LIMITS = TextLimits()


def failing(*reasons: str, outcome: str = "FAIL", boot: Any = None) -> dict[str, Any]:
    """Return a document in which one test for each reason failed, each in its own gate."""
    document = empty("REJECT")
    gates = [
        {
            "gate": f"gate{at}", "outcome": outcome, "reason": reason, "duration_s": 1.0,
            "tests": [{"test": f"test_{at}[a]", "outcome": outcome, "reason": reason,
                       "duration_s": 1.0, "evidence": {}}],
        }
        for at, reason in enumerate(reasons)
    ]  # fmt: skip
    checkpoint = {"name": "m", "source": "s", "revision": None}
    document["families"] = [{"name": "a", "checkpoint": checkpoint, "boot": boot, "gates": gates}]
    return document


def test_one_cause_of_many_failures_is_the_headline() -> None:
    document = failing("the connection was reset\nmore", "the connection was reset", *["other"] * 1,
                       "the connection was reset (in 3 of 81 cases)")  # fmt: skip
    found = causes(document, LIMITS)
    assert found.headline
    assert (found.headline.says, found.headline.checks) == ("the connection was reset", 3)
    assert found.headline.gates == ("a: gate0", "a: gate1", "a: gate3")
    text = checked(document).text
    assert "REJECT Something users would notice is broken" in text
    assert "3 of the 4 checks that did not pass have one cause: the connection was reset" in text


def test_reasons_that_differ_in_numbers_alone_are_one_cause() -> None:
    found = causes(failing("gave 3 tokens of 10", "gave 4 tokens of 1,024"), LIMITS)
    assert [(cause.checks, cause.says) for cause in found.shared] == [(2, "gave 3 tokens of 10")]
    assert found.headline is None, "two are not many"


def test_two_equal_parts_have_no_headline_without_half() -> None:
    found = causes(failing(*["a"] * 3, *["b"] * 2, *[f"c{'x' * at}" for at in range(4)]), LIMITS)
    assert found.unwell == 9
    assert [cause.checks for cause in found.shared] == [3, 2]
    assert found.headline is None


def test_checks_that_a_failed_boot_blocks_have_its_cause() -> None:
    document = load(REJECT)
    found = causes(document, LIMITS)
    assert found.headline
    assert found.headline.says == (
        "the server did not boot: the KV cache does not hold one request of full length"
    )
    assert "glm: boot" in found.headline.gates
    assert "glm: tools" in found.headline.gates
    assert found.headline.anchor == "family-1"


def test_checks_that_passed_or_are_known_have_no_cause() -> None:
    for outcome in ("PASS", "KNOWN", "WAIVED", "N/A"):
        assert causes(failing(*["same"] * 5, outcome=outcome), LIMITS).unwell == 0


def test_several_causes_are_listed_with_their_gates() -> None:
    text = checked(failing(*["a reason"] * 3, *["another one"] * 2)).text
    assert (
        "Causes that several checks share 3 checks : a reason a: gate0, a: gate1, a: gate2" in text
    )
    assert "2 checks : another one a: gate3, a: gate4" in text


@pytest.mark.parametrize("boot", [None, {"ok": False, "failure": None, "explanation": None}])
def test_blocked_without_a_known_boot_keeps_its_reason(boot: Any) -> None:
    document = failing(*["the server did not boot: x"] * 3, outcome="BLOCKED", boot=boot)
    found = causes(document, LIMITS)
    assert found.headline and found.headline.says == "the server did not boot: x"


@given(JUNK, st.lists(st.text(max_size=30), max_size=8))
def test_any_document_has_causes(junk: Any, reasons: list[str]) -> None:
    document = failing(*reasons, boot=junk if isinstance(junk, dict) else None)
    found = causes(document, LIMITS)
    assert found.unwell == len(reasons)
    assert sum(cause.checks for cause in found.shared) <= len(reasons)
    causes({"families": junk}, LIMITS)
