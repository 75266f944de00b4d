"""The summary is one line a gate, then the verdict with every reason."""

from __future__ import annotations

import datetime
import re

import pytest

from pytest_vllm_gates.catalog.waivers import Waiver, WaiverState, of_lane
from pytest_vllm_gates.outcomes import GONE, STANDING, Outcome, TestResult
from pytest_vllm_gates.report import terminal
from pytest_vllm_gates.verdict.verdict import Promotion, decide


def test_every_outcome_and_verdict_has_a_colour() -> None:
    assert set(terminal.COLOURS) == {*Outcome, *Promotion}


def lines(*results: TestResult) -> list[tuple[str, str]]:
    return list(terminal.lines(decide(results, {"qwen3.5": ["boot"]})))


def test_a_gate_is_one_line_with_its_first_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    summary = lines(
        TestResult("qwen3.5", "boot", "a", Outcome.PASS, duration_s=1.0),
        TestResult("qwen3.5", "boot", "b", Outcome.FAIL, "it broke\nin detail", duration_s=0.5),
        TestResult("qwen3.5", "streaming", "c", Outcome.PASS),
    )
    assert summary == [
        ("red", "qwen3.5  boot       FAIL            2 tests      1.5 s  it broke"),
        ("green", "qwen3.5  streaming  PASS            1 test       0.0 s"),
        ("", ""),
        ("red", "verdict: REJECT"),
        ("", "  - qwen3.5: boot is FAIL: it broke"),
    ]


def test_tests_that_do_not_apply_are_not_counted_as_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of text read "vision PASS 12 tests", and eleven of them had not run."""
    monkeypatch.setenv("COLUMNS", "200")
    unseen = [
        TestResult("qwen3.5", "vision", str(at), Outcome.NOT_APPLICABLE, "no eyes")
        for at in range(11)
    ]
    summary = lines(
        TestResult("qwen3.5", "boot", "a", Outcome.PASS),
        *unseen,
        TestResult("qwen3.5", "vision", "z", Outcome.PASS),
        TestResult("qwen3.5", "tools", "a", Outcome.NOT_APPLICABLE, "no tools"),
    )
    assert [text for _, text in summary[:3]] == [
        "qwen3.5  boot    PASS            1 test              0.0 s",
        "qwen3.5  vision  PASS            1 test, 11 n/a      0.0 s",
        "qwen3.5  tools   N/A             0 tests, 1 n/a      0.0 s  no tools",
    ]
    assert terminal.counted(["PASS", "N/A"]) == "1, 1 n/a"
    assert terminal.counted(["PASS", "FAIL"]) == "2"


def test_requests_of_each_gate_follow_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    summary = lines(
        TestResult("qwen3.5", "boot", "a", Outcome.PASS, requests=2),
        TestResult("qwen3.5", "boot", "b", Outcome.PASS),
        TestResult("qwen3.5", "tools", "c", Outcome.PASS, requests=7),
    )
    assert summary[2:4] == [("", "qwen3.5: 9 requests: boot 2, tools 7"), ("", "")]


@pytest.mark.parametrize("columns", ["20", "60", "100"])
def test_gate_line_fits_terminal_and_reason_follows_below(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    reason = "word " * 50
    summary = lines(TestResult("qwen3.5", "boot", "a", Outcome.FAIL, reason))
    assert len(summary[0][1]) <= max(int(columns), terminal.NARROW)
    assert any(reason.strip() in text for _, text in summary)


def test_reason_that_does_not_fit_has_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns it was cut at 19 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    reason = "changed since it was recorded: chat template, chat_template.jinja and one more"
    summary = lines(TestResult("qwen3.5", "chat_template", "a", Outcome.FAIL, reason))
    (_, head), (_, first), (_, second), *_ = summary
    assert head == "qwen3.5  chat_template  FAIL            1 test       0.0 s"
    assert f"{first.strip()} {second.strip()}" == reason
    assert first.startswith(terminal.INDENT)
    assert max(len(first), len(second)) <= 80


def test_long_reason_of_the_verdict_bends_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    reason = "word " * 12 + "export OPENAI_API_KEY, or name its variable with --api-key-env"
    verdict = decide([TestResult("q", "boot", "a", Outcome.FAIL, reason)], {"q": ["boot"]})
    (whole,) = [text for _, text in terminal.lines(verdict) if text.startswith("  - ")]
    assert whole.endswith(reason)
    bent = [text for _, text in terminal.lines(verdict, bends=True)]
    begin = next(at for at, text in enumerate(bent) if text.startswith("  - "))
    assert bent[begin + 1].startswith(terminal.INDENT)
    assert max(map(len, bent)) <= 80
    assert any("--api-key-env" in text for text in bent[begin:])


def test_endless_reason_is_cut_after_some_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bent = lines(TestResult("qwen3.5", "boot", "a", Outcome.FAIL, "word " * 200))
    assert bent[terminal.REASON_LINES][1].endswith(" …")
    assert bent[terminal.REASON_LINES + 1] == ("", "")


def test_empty_run_has_only_a_verdict() -> None:
    assert lines()[1] == ("yellow", "verdict: HOLD")


def test_known_defects_follow_the_verdict() -> None:
    evidence = {STANDING: ["text is lost (vllm#1)"], GONE: ["a call is lost (vllm#2)"]}
    summary = lines(
        TestResult("qwen3.5", "boot", "a", Outcome.KNOWN, "text is lost", evidence=evidence),
        TestResult("qwen3.5", "boot", "b", Outcome.PASS),
    )
    assert summary[0][0] == "yellow"
    assert summary[2:] == [
        ("green", "verdict: PROMOTE"),
        ("", "  - all 1 applicable gates passed (1 tests); known defects seen: 1"),
        ("yellow", "  known defects, seen (-v lists each): qwen3.5: boot 1"),
        (
            "green",
            "  known defect, no longer seen (remove its entry): "
            "qwen3.5: boot: a call is lost (vllm#2)",
        ),
    ]


def test_known_defects_are_counted_and_listed_when_verbose() -> None:
    def known(family: str, gate: str, *defects: str) -> TestResult:
        evidence = {STANDING: [*defects]}
        return TestResult(family, gate, "a", Outcome.KNOWN, defects[0], evidence=evidence)

    results = [
        known("qwen3.5", "stop", "text is lost: all (vllm#1)", "a stop stops nothing"),
        known("qwen3.5", "tools", "a call is lost"),
        known("glm", "stop", "text is lost: all (vllm#1)"),
    ]
    verdict = decide(results, {"qwen3.5": ["stop", "tools"], "glm": ["stop"]})
    assert (
        "yellow",
        "  known defects, seen (-v lists each): qwen3.5: stop 2, tools 1; glm: stop 1",
    ) in terminal.lines(verdict)
    verbose = [text for _, text in terminal.lines(verdict, verbose=True) if "defect, seen" in text]
    assert verbose == [
        "  known defect, seen: qwen3.5: stop: text is lost: all (vllm#1)",
        "  known defect, seen: qwen3.5: stop: a stop stops nothing",
        "  known defect, seen: qwen3.5: tools: a call is lost",
        "  known defect, seen: glm: stop: text is lost: all (vllm#1)",
    ]


def test_waivers_follow_the_verdict() -> None:
    until = datetime.date(2026, 12, 1)
    waiver = Waiver(check="qwen3.5: boot", who="Jane", why="a fix comes", until=until)
    waived = TestResult("qwen3.5", "boot", "a", Outcome.WAIVED, "waived by Jane until …: it broke")
    test_results = [waived, TestResult("qwen3.5", "boot", "b", Outcome.PASS)]
    settled = [
        settled_waiver
        for results in ([waived], [test_results[1]])
        for settled_waiver in of_lane([waiver], "cpu", until).settle(results)
    ]
    assert (
        {settled_waiver.state for settled_waiver in settled} < {*terminal.WAIVERS} == {*WaiverState}
    )
    summary = list(terminal.lines(decide(test_results, {"qwen3.5": ["boot"]}, waivers=settled)))
    assert summary[0][0] == "yellow"
    whose = "qwen3.5: boot (by Jane, until 2026-12-01: a fix comes)"
    assert summary[-2:] == [
        ("yellow", f"  waived: {whose}"),
        ("green", f"  waiver, unused: {whose}; nothing fails there any more (delete it)"),
    ]


def test_columns_are_aligned() -> None:
    summary = lines(
        TestResult("qwen3.5", "boot", "a", Outcome.NOT_APPLICABLE),
        TestResult("qwen3.5", "chat_template", "a", Outcome.INCONCLUSIVE),
    )
    places = [re.search(r"\d tests?", text) for _, text in summary[:2]]
    assert len({place.start() for place in places if place}) == 1


def test_two_lanes_are_summed_up_in_a_line() -> None:
    against = {
        "lane": {"name": "stable"},
        "checks": [{"kind": "both"}, {"kind": "regression"}, {"kind": "regression"}],
        "drift": [{}],
    }
    assert terminal.side_by_side(against) == (
        "compared with lane stable: 2 fail only here, 1 fail on both, 1 different without a failure"
    )
    nothing = {"lane": {"name": "stable"}, "checks": [], "drift": []}
    assert terminal.side_by_side(nothing) == "compared with lane stable: nothing differs"
    assert terminal.side_by_side(nothing, ["vllm", "feature ngram"]) == (
        "compared with lane stable (axes: vllm, feature ngram): nothing differs"
    )
