"""Outcomes become a verdict: nothing unseen passes, and any failure rejects."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from texts import texts

from pytest_vllm_gates.catalog.waivers import SettledWaiver, Waiver, WaiverState
from pytest_vllm_gates.outcomes import (
    GONE,
    STANDING,
    Blocked,
    Inconclusive,
    MissingBaseline,
    MissingGolden,
    NotApplicable,
    Outcome,
    TestResult,
)
from pytest_vllm_gates.verdict.verdict import Promotion, Verdict, decide

FAMILY = "qwen3.5"
GATES = ("boot", "chat_template", "streaming")
BREAKING = (Outcome.FAIL, Outcome.BLOCKED)


def result(gate: str, outcome: str, reason: str = "", *, breaks: bool | None = None) -> TestResult:
    kind = Outcome(outcome)
    return TestResult(
        family=FAMILY,
        gate=gate,
        test=f"test_{gate}",
        outcome=kind,
        reason=reason or ("" if kind is Outcome.PASS else f"because {gate}"),
        breaks=kind in BREAKING if breaks is None else breaks,
        duration_s=0.5,
    )


def verdict(*outcomes: str) -> Verdict:
    """Decide a run in which each gate, in order, had one test of this outcome."""
    results = [result(gate, outcome) for gate, outcome in zip(GATES, outcomes, strict=False)]
    return decide(results, {FAMILY: GATES[: len(outcomes)]})


@pytest.mark.parametrize(
    ("outcomes", "promotion", "status", "required"),
    [
        (["PASS"], "PROMOTE", 0, 0),
        (["PASS", "PASS", "PASS"], "PROMOTE", 0, 0),
        (["PASS", "N/A"], "PROMOTE", 0, 0),
        (["N/A"], "HOLD", 0, 6),
        (["N/A", "N/A", "N/A"], "HOLD", 0, 6),
        ([], "HOLD", 0, 6),
        (["FAIL"], "REJECT", 1, 1),
        (["PASS", "FAIL", "PASS"], "REJECT", 1, 1),
        (["FAIL", "BLOCKED", "BLOCKED"], "REJECT", 1, 1),
        (["MISSING", "FAIL", "INCONCLUSIVE"], "REJECT", 1, 1),
        (["BLOCKED", "PASS"], "HOLD", 1, 6),
        (["PASS", "MISSING"], "HOLD", 0, 6),
        (["PASS", "INCONCLUSIVE"], "HOLD", 0, 6),
        (["PASS", "KNOWN"], "PROMOTE", 0, 0),
        (["KNOWN", "KNOWN"], "HOLD", 0, 6),
        (["KNOWN", "FAIL"], "REJECT", 1, 1),
        (["KNOWN", "INCONCLUSIVE", "PASS"], "HOLD", 0, 6),
        (["KNOWN", "BLOCKED", "PASS"], "HOLD", 1, 6),
        (["PASS", "WAIVED"], "PROMOTE", 0, 0),
        (["WAIVED", "WAIVED"], "HOLD", 0, 6),
        (["WAIVED", "FAIL", "PASS"], "REJECT", 1, 1),
        (["WAIVED", "MISSING", "PASS"], "HOLD", 0, 6),
        (["WAIVED", "BLOCKED", "PASS"], "HOLD", 1, 6),
    ],
)
def test_outcomes_give_their_verdict_and_exit_status(
    outcomes: list[str], promotion: str, status: int, required: int
) -> None:
    decision = verdict(*outcomes)
    assert decision.promotion == promotion
    assert decision.exit_status(require_promotion=False) == status
    assert decision.exit_status(require_promotion=True) == required
    assert decision.reasons


@pytest.mark.parametrize(("kind", "status"), [(MissingGolden, 1), (MissingBaseline, 0)])
def test_missing_golden_breaks_and_missing_baseline_does_not(
    kind: type[MissingGolden | MissingBaseline], status: int
) -> None:
    decision = decide([result("boot", kind.outcome, breaks=kind.breaks)], {FAMILY: ["boot"]})
    assert decision.promotion is Promotion.HOLD
    assert decision.exit_status(require_promotion=False) == status


def test_exception_names_its_outcome() -> None:
    raised = {kind: (kind.outcome.value, kind.breaks) for kind in (Blocked, MissingGolden)}
    assert raised == {Blocked: ("BLOCKED", True), MissingGolden: ("MISSING", True)}
    for kind, outcome in [(Inconclusive, "INCONCLUSIVE"), (NotApplicable, "N/A")]:
        assert (kind.outcome, kind.breaks) == (outcome, False)


def test_broken_test_counts_beside_a_worse_test_of_its_gate() -> None:
    decision = decide(
        [result("boot", "INCONCLUSIVE"), result("boot", "PASS", breaks=True)], {FAMILY: ["boot"]}
    )
    assert decision.exit_status(require_promotion=False) == 1


@pytest.mark.parametrize(
    ("outcomes", "gate"),
    [
        (["PASS", "FAIL"], "FAIL"),
        (["BLOCKED", "FAIL"], "FAIL"),
        (["MISSING", "BLOCKED"], "BLOCKED"),
        (["INCONCLUSIVE", "MISSING"], "MISSING"),
        (["PASS", "INCONCLUSIVE"], "INCONCLUSIVE"),
        (["PASS", "KNOWN"], "KNOWN"),
        (["KNOWN", "INCONCLUSIVE"], "INCONCLUSIVE"),
        (["KNOWN", "FAIL"], "FAIL"),
        (["N/A", "KNOWN"], "KNOWN"),
        (["KNOWN", "WAIVED"], "WAIVED"),
        (["PASS", "WAIVED"], "WAIVED"),
        (["INCONCLUSIVE", "WAIVED"], "INCONCLUSIVE"),
        (["FAIL", "WAIVED"], "FAIL"),
        (["N/A", "PASS"], "PASS"),
        (["N/A", "N/A"], "N/A"),
    ],
)
def test_the_worst_test_is_the_gates_outcome(outcomes: list[str], gate: str) -> None:
    decision = decide([result("boot", outcome) for outcome in outcomes], {FAMILY: ["boot"]})
    assert [
        (gate_result.gate, gate_result.outcome, len(gate_result.tests))
        for gate_result in decision.gates
    ] == [("boot", gate, 2)]
    assert decision.gates[0].duration_s == 1.0


def test_known_defects_seen_are_listed_once_and_do_not_block() -> None:
    known = replace(result("streaming", "KNOWN"), evidence={STANDING: ["text is lost (vllm#1)"]})
    decision = decide([result("boot", "PASS"), known, known], {FAMILY: ["boot", "streaming"]})
    assert decision.promotion is Promotion.PROMOTE
    assert decision.standing == ("qwen3.5: streaming: text is lost (vllm#1)",)
    assert decision.gone == ()
    assert decision.reasons == ("all 2 applicable gates passed (1 tests); known defects seen: 1",)


def test_known_defect_does_not_hide_another_failure() -> None:
    both = replace(
        result("streaming", "FAIL", "usage differs"), evidence={STANDING: ["text is lost (vllm#1)"]}
    )
    decision = decide([result("boot", "PASS"), both], {FAMILY: ["boot", "streaming"]})
    assert decision.promotion is Promotion.REJECT
    assert decision.reasons == ("qwen3.5: streaming is FAIL: usage differs",)
    assert decision.standing == ("qwen3.5: streaming: text is lost (vllm#1)",)


def test_gone_known_defect_is_listed() -> None:
    passed = replace(result("streaming", "PASS"), evidence={GONE: ["text is lost (vllm#1)"]})
    decision = decide([passed], {FAMILY: ["streaming"]})
    assert decision.promotion is Promotion.PROMOTE
    assert decision.gone == ("qwen3.5: streaming: text is lost (vllm#1)",)
    assert "known" not in decision.reasons[0]


WEIGHED = (
    result("load", "INCONCLUSIVE", "the machine is busy"),
    result("tools", "MISSING", "no golden"),
    result("streaming", "BLOCKED", "the server died\nmore"),
    result("stop", "WAIVED"),
    result("boot", "FAIL", "no"),
)


@given(st.permutations(WEIGHED))
def test_reasons_are_ordered_by_weight(results: list[TestResult]) -> None:
    decision = decide(results, {FAMILY: GATES}, holds=["the run was interrupted"])
    assert decision.reasons == (
        "qwen3.5: boot is FAIL: no",
        "qwen3.5: streaming is BLOCKED: the server died",
        "qwen3.5: tools is MISSING: no golden",
        "qwen3.5: load is INCONCLUSIVE: the machine is busy",
        "qwen3.5: chat_template did not run",
        "the run was interrupted",
    )
    assert decision.promotion is Promotion.REJECT


def test_promotion_counts_the_failures_it_lets_pass() -> None:
    decision = decide(
        [result("boot", "PASS"), result("boot", "WAIVED"), result("streaming", "WAIVED")],
        {FAMILY: ["boot", "streaming"]},
    )
    assert (decision.promotion, decision.reasons) == (
        "PROMOTE",
        ("all 2 applicable gates passed (1 tests); failures that are waived: 2",),
    )


def test_run_without_a_pass_has_that_reason() -> None:
    assert decide([], {}).reasons == ("no gate passed",)
    assert verdict("BLOCKED").reasons == (
        "qwen3.5: boot is BLOCKED: because boot",
        "no gate passed",
    )


def test_failure_without_a_reason_is_named_and_pass_has_none() -> None:
    silent = TestResult(FAMILY, "boot", "test_boot", Outcome.FAIL)
    decision = decide([silent, result("stop", "PASS", "aside")], {FAMILY: ["boot"]})
    assert decision.reasons == ("qwen3.5: boot is FAIL: no reason given",)
    assert [gate.reason for gate in decision.gates] == ["", ""]


def test_several_reasons_of_a_gate_are_counted() -> None:
    two = [result("boot", "FAIL", reason) for reason in ("one", "two")]
    assert decide(two, {FAMILY: ["boot"]}).reasons == ("qwen3.5: boot is FAIL: one (and 1 more)",)
    tests = [result("boot", "FAIL", reason) for reason in ("one", "two", "one", "three")]
    assert decide(tests, {FAMILY: ["boot"]}).reasons[0] == (
        "qwen3.5: boot is FAIL: one (and 2 more)"
    )


def test_promotion_counts_its_gates_and_tests() -> None:
    assert verdict("PASS", "N/A", "PASS").reasons == ("all 2 applicable gates passed (2 tests)",)


def test_a_gate_that_did_not_run_leads_to_hold() -> None:
    decision = decide([result("boot", "PASS")], {FAMILY: GATES})
    assert decision.promotion is Promotion.HOLD
    assert "qwen3.5: streaming did not run" in decision.reasons


def test_a_family_without_any_gate_run_leads_to_hold() -> None:
    decision = decide([result("boot", "PASS")], {FAMILY: ["boot"], "glm": ["boot"]})
    assert (decision.promotion, decision.reasons) == ("HOLD", ("glm: boot did not run",))


def test_not_applicable_gate_need_not_run() -> None:
    decision = decide(
        [result("boot", "PASS")],
        {FAMILY: ["boot", "streaming"]},
        not_applicable={(FAMILY, "streaming"): "it only answers whole"},
    )
    assert decision.promotion is Promotion.PROMOTE
    assert [(gate.gate, gate.outcome, gate.reason) for gate in decision.gates][1] == (
        "streaming",
        "N/A",
        "it only answers whole",
    )


def test_not_applicable_gate_that_ran_is_judged() -> None:
    decision = decide(
        [result("boot", "PASS"), result("streaming", "FAIL")],
        {FAMILY: ["boot", "streaming"]},
        not_applicable={(FAMILY, "streaming"): "it only answers whole"},
    )
    assert decision.promotion is Promotion.REJECT


def test_unexpected_gate_is_not_listed_as_not_applicable() -> None:
    decision = decide(
        [result("boot", "PASS")],
        {FAMILY: ["boot"]},
        not_applicable={(FAMILY, "boot"): "a", (FAMILY, "stop"): "b", ("glm", "boot"): "c"},
    )
    assert [(gate.gate, gate.outcome) for gate in decision.gates] == [("boot", "PASS")]


def test_reason_of_the_run_leads_to_hold() -> None:
    decision = decide([result("boot", "PASS")], {FAMILY: ["boot"]}, holds=["it was recording"])
    assert (decision.promotion, decision.reasons) == ("HOLD", ("it was recording",))


RESULTS = st.lists(
    st.builds(
        result,
        st.sampled_from(GATES),
        st.sampled_from([outcome.value for outcome in Outcome]),
        texts,
        breaks=st.none(),
    ),
    max_size=12,
)


@given(RESULTS, st.lists(st.just("held"), max_size=1))
def test_rules_are_kept_for_any_run(results: list[TestResult], holds: list[str]) -> None:
    decision = decide(results, {FAMILY: GATES}, holds=holds)
    outcomes = {test_result.outcome for test_result in results}
    assert (decision.promotion is Promotion.REJECT) == (Outcome.FAIL in outcomes)
    if decision.promotion is Promotion.PROMOTE:
        assert outcomes <= {Outcome.PASS, Outcome.NOT_APPLICABLE, Outcome.KNOWN, Outcome.WAIVED}
        assert Outcome.PASS in outcomes
        assert {test_result.gate for test_result in results} == set(GATES)
        assert not holds
    else:
        assert decision.reasons
    status = decision.exit_status(require_promotion=False)
    assert status == int(
        any(test_result.breaks or test_result.outcome is Outcome.FAIL for test_result in results)
    )
    required = decision.exit_status(require_promotion=True)
    assert required == {"PROMOTE": 0, "REJECT": 1, "HOLD": 6}[decision.promotion]
    assert sum(len(gate.tests) for gate in decision.gates) == len(results)


@given(RESULTS)
def test_the_order_of_tests_does_not_matter(results: list[TestResult]) -> None:
    forth, back = decide(results, {FAMILY: GATES}), decide(results[::-1], {FAMILY: GATES})
    assert forth.promotion is back.promotion
    assert {(gate.gate, gate.outcome) for gate in forth.gates} == {
        (gate.gate, gate.outcome) for gate in back.gates
    }


@given(
    RESULTS, st.sampled_from([outcome.value for outcome in Outcome if outcome is not Outcome.PASS])
)
def test_another_result_that_is_not_pass_never_promotes(
    results: list[TestResult], outcome: str
) -> None:
    if decide(results, {FAMILY: GATES}).promotion is Promotion.PROMOTE:
        return
    more = [*results, result("boot", outcome)]
    gates = {test_result.gate for test_result in results}
    if outcome != "N/A" or "boot" in gates:
        assert decide(more, {FAMILY: GATES}).promotion is not Promotion.PROMOTE


def test_failure_on_both_lanes_leads_to_hold_and_regression_to_reject() -> None:
    old = replace(result("boot", "FAIL", "an old defect"), test="test_old")
    new = replace(result("boot", "FAIL", "a new one"), test="test_new")
    fails_there = {(FAMILY, "boot", "test_old")}
    decision = decide([old], {FAMILY: ["boot"]}, fails_there=fails_there, there="stable")
    assert decision.promotion == "HOLD"
    assert decision.reasons[0] == (
        "qwen3.5: boot is FAIL: an old defect (not a regression: it also fails on lane stable)"
    )
    rejected = decide([old, new], {FAMILY: ["boot"]}, fails_there=fails_there, there="stable")
    assert rejected.promotion == "REJECT"
    assert rejected.reasons == ("qwen3.5: boot is FAIL: a new one",)


def test_gates_blocked_by_one_cause_are_one_reason() -> None:
    results = [result(gate, "BLOCKED", "no server") for gate in GATES]
    decision = decide(results, {FAMILY: GATES})
    assert decision.reasons[0] == (
        "qwen3.5: 3 gates are BLOCKED: no server (boot, chat_template, streaming)"
    )


def test_gates_blocked_by_several_causes_are_separate_reasons() -> None:
    results = [
        result("boot", "BLOCKED", "no server"),
        result("streaming", "BLOCKED", "no reply"),
        replace(result("boot", "BLOCKED", "no server"), family="glm"),
    ]
    assert decide(results, {}).reasons[:3] == (
        "qwen3.5: boot is BLOCKED: no server",
        "qwen3.5: streaming is BLOCKED: no reply",
        "glm: boot is BLOCKED: no server",
    )


@pytest.mark.parametrize(
    ("causes", "cause"),
    [
        (["infrastructure"], "infrastructure"),
        (["infrastructure", "infrastructure"], "infrastructure"),
        (["infrastructure", ""], ""),
        ([""], ""),
    ],
)
def test_gate_has_the_cause_that_all_its_worst_tests_have(causes: list[str], cause: str) -> None:
    tests = [
        replace(result("boot", "BLOCKED"), test=f"test_{number}", cause=one_cause)
        for number, one_cause in enumerate(causes)
    ]
    passed = replace(result("boot", "PASS"), cause="of a test that passed")
    (gate,) = decide([*tests, passed], {}).gates
    assert gate.cause == cause
    assert gate.shown_outcome == (f"BLOCKED ({cause})" if cause else "BLOCKED")


@pytest.mark.parametrize("outcome", ["PASS", "FAIL", "MISSING"])
def test_every_verdict_lists_waivers_and_known_defects(outcome: str) -> None:
    until = datetime.date(2026, 11, 30)
    waiver = Waiver(check=f"{FAMILY}: tools", who="Jane", why="mended soon", until=until)
    settled = SettledWaiver(waiver, WaiverState.UNUSED, "unused")
    test_result = replace(result("boot", outcome), evidence={GONE: ["a (vllm#1)"], STANDING: ["b"]})
    decision = decide([test_result], {FAMILY: ["boot"]}, waivers=[settled])
    assert decision.waivers == (settled,)
    assert (decision.gone, decision.standing) == (
        ("qwen3.5: boot: a (vllm#1)",),
        ("qwen3.5: boot: b",),
    )
