"""The difference of two bundles as JSON, and as text for people."""

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
    ("stable is a URL",),
)


def test_changes_are_a_table_under_the_lanes_names() -> None:
    assert [*diff_lines(DIFF)] == [
        "                         canary        stable",
        "vllm           vllm      0.33.0        0.32.0",
        "               xgrammar  0.3.0         -",
        "chat template  glm       aaaaaaaaaaaa  bbbbbbbbbbbb",
        "same: torch, driver",
        "not known: machine",
        "  stable is a URL",
        "warning: 2 axes changed at once",
    ]


def test_document_has_the_whole_difference() -> None:
    document = diff_document(DIFF)
    assert document["axes"] == ["vllm", "chat template"]
    assert document["changed"][2] == {
        "axis": "chat template", "name": "glm", "ours": "a" * 64, "theirs": "b" * 64,
    }  # fmt: skip
    assert (document["same"], document["unknown"]) == (["torch", "driver"], ["machine"])
    assert document["why"] == ["stable is a URL"]
    assert document["warning"] == "2 axes changed at once"


def test_unknown_axis_is_not_listed_as_same() -> None:
    assert (
        next(diff_lines(BundleDiff("a", "b", (), ("flags",), ())))
        == "nothing differs between a and b"
    )
    assert next(diff_lines(BundleDiff("a", "b", (), ("flags",), ("machine",)))) == (
        "nothing that is known differs between a and b"
    )


def test_many_changes_are_listed_up_to_a_limit() -> None:
    changed = tuple(BundleChange("CUDA", f"nvidia-{number:02}", "1", None) for number in range(30))
    lines = [*diff_lines(BundleDiff("a", "b", changed, (), ()))]
    assert len(lines) == 10
    assert lines[-1].strip() == "… and 22 more"
    assert len(diff_document(BundleDiff("a", "b", changed, (), ()))["changed"]) == 30
