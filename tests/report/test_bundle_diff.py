"""A bundle's difference as JSON and as a person reads it."""

from __future__ import annotations

from pytest_vllm_gates.lanes.describe import BundleChange, BundleDiff
from pytest_vllm_gates.report.environment import diff_document, diff_lines

DIFF = BundleDiff(
    "canary",
    "stable",
    (
        BundleChange("vllm", "vllm", "0.33.0", "0.32.0"),
        BundleChange("vllm", "xgrammar", "0.3.0", None),
        BundleChange("chat template", "glm", "a" * 64, "b" * 64),
    ),
    ("torch", "driver"),
    ("machine",),
    "2 axes changed at once",
)


def test_a_person_reads_a_table_under_the_lanes_names() -> None:
    assert [*diff_lines(DIFF)] == [
        "                         canary        stable",
        "vllm           vllm      0.33.0        0.32.0",
        "               xgrammar  0.3.0         -",
        "chat template  glm       aaaaaaaaaaaa  bbbbbbbbbbbb",
        "same: torch, driver",
        "not known: machine",
        "warning: 2 axes changed at once",
    ]


def test_a_program_reads_all_of_it() -> None:
    found = diff_document(DIFF)
    assert found["axes"] == ["vllm", "chat template"]
    assert found["changed"][2] == {
        "axis": "chat template", "name": "glm", "ours": "a" * 64, "theirs": "b" * 64,
    }  # fmt: skip
    assert (found["same"], found["unknown"]) == (["torch", "driver"], ["machine"])
    assert found["warning"] == "2 axes changed at once"


def test_nothing_is_said_to_be_the_same_that_is_not_known() -> None:
    assert (
        next(diff_lines(BundleDiff("a", "b", (), ("flags",), ())))
        == "nothing differs between a and b"
    )
    assert next(diff_lines(BundleDiff("a", "b", (), ("flags",), ("machine",)))) == (
        "nothing that can be known differs between a and b"
    )


def test_of_many_changes_the_first_are_listed() -> None:
    changed = tuple(BundleChange("CUDA", f"nvidia-{number:02}", "1", None) for number in range(30))
    told = [*diff_lines(BundleDiff("a", "b", changed, (), ()))]
    assert len(told) == 10
    assert told[-1].strip() == "… and 22 more"
    assert len(diff_document(BundleDiff("a", "b", changed, (), ()))["changed"]) == 30
