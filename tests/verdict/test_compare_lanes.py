"""Two lanes are compared: regressions, defects of both lanes, and drift."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.verdict import compare_lanes
from pytest_vllm_gates.verdict.compare_lanes import Watched

WATCHED = (
    Watched(gate="startup", test="test_starts", where="how it starts"),
    Watched(gate="chat", test="test_sampling", key="sampling", where="sampling"),
)


def result(outcome: str, gate: str = "tools", test: str = "test_a[x]", **more: Any) -> TestResult:
    return TestResult("x", gate, test, Outcome(outcome), **more)


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        ("PASS", "PASS", None),
        ("FAIL", "PASS", "regression"),
        ("FAIL", "MISSING", "regression"),
        ("FAIL", "BLOCKED", "regression"),
        ("FAIL", None, "regression"),
        ("FAIL", "FAIL", "both"),
        ("PASS", "FAIL", "mended"),
        ("BLOCKED", "FAIL", "mended"),
        ("BLOCKED", "PASS", "unequal"),
        ("PASS", None, "unequal"),
        (None, "PASS", "unequal"),
        ("BLOCKED", "BLOCKED", None),
        ("N/A", "N/A", None),
    ],
)
def test_kind_of_difference_between_two_outcomes(
    ours: str | None, theirs: str | None, kind: str | None
) -> None:
    checks = compare_lanes.checks(
        [result(ours, reason="here")] if ours else [],
        [result(theirs, reason="there")] if theirs else [],
    )
    assert [compared_check.kind for compared_check in checks] == ([kind] if kind else [])
    for check in checks:
        assert (check.ours, check.theirs) == (ours, theirs)
        assert check.ours_says == ("here" if ours else "")
        assert check.theirs_says == ("there" if theirs else "")


def test_regressions_come_first() -> None:
    ours = [result("PASS", test="a"), result("FAIL", test="b"), result("FAIL", test="c")]
    theirs = [result("FAIL", test="a"), result("FAIL", test="b"), result("PASS", test="c")]
    assert [check.test for check in compare_lanes.checks(ours, theirs)] == ["c", "b", "a"]


def test_only_outcome_fail_is_failing() -> None:
    results = [result(outcome, test=outcome) for outcome in ("FAIL", "PASS", "BLOCKED", "WAIVED")]
    assert compare_lanes.failing(results) == {("x", "tools", "FAIL")}


def drifted(ours: Any, theirs: Any, outcome: str = "PASS") -> list[tuple[str, Any, Any]]:
    drifts = compare_lanes.drift(
        [result(outcome, "startup", "test_starts[x]", evidence=ours)],
        [result("PASS", "startup", "test_starts[x]", evidence=theirs)],
        WATCHED,
    )
    assert {drift.where for drift in drifts} <= {"how it starts"}
    return [(drift.name, drift.ours, drift.theirs) for drift in drifts]


def test_drift_names_the_difference() -> None:
    ours = {"backend": "B", "same": 1, "flags": {"a": True}, "routes": ["/x", "/new"]}
    theirs = {"backend": "A", "same": 1, "flags": {"a": False}, "routes": ["/x", "/old"]}
    assert drifted(ours, theirs) == [
        ("backend", "B", "A"),
        ("flags: a", "True", "False"),
        ("routes: /new", "there", None),
        ("routes: /old", None, "there"),
    ]


def test_figures_may_differ_a_little() -> None:
    assert drifted({"kv": 1000}, {"kv": 1040}) == []
    assert drifted({"kv": 1000}, {"kv": 1100}) == [("kv", "1000", "1100")]
    assert drifted({"kv": 1050}, {"kv": 1000}) == []
    assert drifted({"kv": 1051}, {"kv": 1000}) == [("kv", "1051", "1000")]
    assert drifted({"on": True}, {"on": False}) == [("on", "True", "False")]


def test_failing_check_is_not_drift() -> None:
    assert drifted({"backend": "B"}, {"backend": "A"}, outcome="FAIL") == []


def test_check_of_one_lane_only_is_not_drift() -> None:
    ours = [result("PASS", "startup", "test_starts[x]", evidence={"backend": "B"})]
    assert compare_lanes.drift(ours, [], WATCHED) == ()


def test_only_the_watched_key_counts() -> None:
    ours, theirs = (
        [result("PASS", "chat", "test_sampling[x]", evidence={"sampling": value, "seconds": at})]
        for value, at in (({"top_p": 0.9}, 1), ({"top_p": 1.0}, 9))
    )
    (drift,) = compare_lanes.drift(ours, theirs, WATCHED)
    assert (drift.where, drift.name, drift.ours, drift.theirs) == ("sampling", "top_p", "0.9", "1")
    assert compare_lanes.drift(ours, ours, WATCHED) == ()


def test_evidence_of_every_check_is_compared() -> None:
    def side(value: str) -> list[TestResult]:
        said: list[tuple[str, str, dict[str, Any]]] = [
            ("tools", "test_unwatched", {"a": value}),
            ("chat", "test_sampling[nothing-said]", {}),
            ("startup", "test_starts[x]", {"backend": value}),
            ("chat", "test_sampling[stop[0]]", {"sampling": [value]}),
        ]
        return [result("PASS", gate, test, evidence=evidence) for gate, test, evidence in said]

    assert compare_lanes.drift(side("B"), side("A"), WATCHED) == (
        compare_lanes.LaneDrift("x", "how it starts", "backend", "B", "A"),
        compare_lanes.LaneDrift("x", "sampling", "B", "there", None),
        compare_lanes.LaneDrift("x", "sampling", "A", None, "there"),
    )


def test_evidence_of_one_lane_only_is_not_drift() -> None:
    test_results, silent = (
        [result("PASS", "chat", "test_sampling", evidence=evidence)]
        for evidence in ({"sampling": {"top_p": 0.9}}, {})
    )
    assert compare_lanes.drift(test_results, silent, WATCHED) == ()
    assert compare_lanes.drift(silent, test_results, WATCHED) == ()


def test_watched_evidence_names_checks_of_gates() -> None:
    from pytest_vllm_gates.verdict import gates as verdict_gates  # noqa: PLC0415 - the gates' files

    for watched in compare_lanes.load():
        source = (verdict_gates.GATES / f"test_{watched.gate}.py").read_text(encoding="utf-8")
        assert f"def {watched.test}(" in source
        assert watched.key is None or f'evidence["{watched.key}"]' in source, watched


def test_documents_are_json() -> None:
    checks = compare_lanes.checks([result("FAIL", reason="r")], [result("FAIL", reason="s")])
    checks += compare_lanes.checks([], [result("FAIL", reason="s")])
    checks += compare_lanes.checks([result("FAIL", reason="r")], [])
    documents = compare_lanes.documents(
        checks, (compare_lanes.LaneDrift("x", "w", "n", "1", None),)
    )
    both = {
        "family": "x",
        "gate": "tools",
        "test": "test_a[x]",
        "kind": "both",
        "ours": "FAIL",
        "theirs": "FAIL",
        "ours_says": "r",
        "theirs_says": "s",
    }
    mended = {**both, "kind": "mended", "ours": None, "ours_says": ""}
    new = {**both, "kind": "regression", "theirs": None, "theirs_says": ""}
    assert json.loads(json.dumps(documents["checks"])) == [both, mended, new]
    assert documents["drift"] == [
        {"family": "x", "where": "w", "name": "n", "ours": "1", "theirs": None}
    ]
