"""A log's report of the server after errors: it serves, loads, was shut down, or is unknown."""

from __future__ import annotations

import pytest

from diagnosis.explaining import HEALTHY, MEMORY, READY, STAMP, classes, explanation_of, signature
from pytest_vllm_gates.server.failure import Confidence, LogOutcome

LOADING = HEALTHY[:5]
SERVED = (HEALTHY[6],) * 40
WARNING = f"(EngineCore pid=2) WARNING {STAMP} [a.py:1] {MEMORY}"
GLOG = f"[W1120 10:00:00.123 socket.cpp:200] [c10d] {MEMORY}"
TRACEBACK = ("Traceback (most recent call last):", "ValueError: nobody has seen this")
APART = tuple(f"line {number}" for number in range(70))
GONE = "the engine did not start"


def test_an_error_before_a_server_is_ready_did_not_keep_it_from_serving() -> None:
    for line in (WARNING, GLOG, MEMORY):
        explanation = explanation_of(*LOADING, line, *HEALTHY[5:])
        assert (explanation.id, explanation.outcome) == (None, LogOutcome.SERVES)
        assert [warning.id for warning in explanation.warnings] == ["MEMORY"]
        assert "the server serves: it answers requests (line 8)" in explanation.lines()[1]


def test_a_warning_is_never_certain_beside_a_real_exception() -> None:
    for line in (WARNING, GLOG):
        explanation = explanation_of(*LOADING, line, *APART, *TRACEBACK)
        assert explanation.id == "UNKNOWN"
        assert [candidate.id for candidate in explanation.candidates] == ["MEMORY"]
        explanation = explanation_of(*LOADING, line, *APART, "OSError: disk sda is full")
        assert explanation.id == "DISK"
    alone = explanation_of(*LOADING, WARNING.replace(MEMORY, "disk sda is full")).answer
    assert alone and alone.confidence is Confidence.CERTAIN


def test_a_cause_that_is_only_ever_a_warning_stays_the_root() -> None:
    warned = signature("OLD", "short of memory", warned=True)
    full = signature("FULL", "disk is full")
    explanation = explanation_of(
        *LOADING, WARNING, *APART, "OSError: disk is full", by=classes(warned, full)
    )
    assert explanation.answer and explanation.id == "OLD"
    explanation = explanation_of(*LOADING, WARNING, *APART, *TRACEBACK, by=classes(warned))
    assert explanation.answer and explanation.id == "OLD"


def test_a_known_line_that_several_failures_print_is_never_certain() -> None:
    hint = signature(
        "HINT", "the page fault at (?P<where>\\w+)", weak=["the page fault at (?P<where>\\w+)"]
    )
    answer = explanation_of("the page fault at x12 of this device", by=classes(hint)).answer
    assert answer and answer.confidence is Confidence.LIKELY


def test_a_failure_that_the_server_outlives_is_reported_with_what_came_after() -> None:
    explanation = explanation_of(*HEALTHY, MEMORY, *SERVED)
    assert explanation.answer
    assert (explanation.id, explanation.outcome) == ("MEMORY", LogOutcome.SERVES)
    assert explanation.answer.confidence is Confidence.LIKELY
    assert any(
        line.startswith("  since then: the server serves: it answers requests (line 49)")
        for line in explanation.lines()
    )
    explanation = explanation_of(*HEALTHY, *SERVED, MEMORY)
    assert (explanation.id, explanation.outcome) == ("MEMORY", LogOutcome.FAILED)


@pytest.mark.parametrize("again", [HEALTHY, (*LOADING, f"INFO:     {READY}")])
def test_a_server_that_recovered_is_reported_as_serving(again: tuple[str, ...]) -> None:
    explanation = explanation_of(*LOADING, MEMORY, GONE, *again)
    assert (explanation.id, explanation.outcome) == ("MEMORY", LogOutcome.SERVES)
    assert any("the server was started again and serves" in line for line in explanation.lines())


def test_the_last_of_several_boots_is_explained() -> None:
    full = "OSError: disk sda is full"
    for a, b in ((MEMORY, full), (full, MEMORY)):
        explanation = explanation_of(*LOADING, a, GONE, *LOADING, b, GONE, *LOADING, a, GONE)
        wanted = "MEMORY" if a == MEMORY else "DISK"
        assert explanation.answer
        assert (explanation.id, explanation.answer.line) == (wanted, 20)
    explanation = explanation_of(*LOADING, MEMORY, GONE, *LOADING, *TRACEBACK, GONE)
    assert (explanation.id, explanation.error_line) == ("UNKNOWN", 14)


def test_boots_without_a_banner_are_separated() -> None:
    engine = HEALTHY[3]
    explanation = explanation_of(
        engine, MEMORY, GONE, *APART, engine, "OSError: disk sda is full", GONE
    )
    assert explanation.id == "DISK"


def test_a_log_that_ends_while_loading_is_reported() -> None:
    explanation = explanation_of(*LOADING)
    assert (explanation.id, explanation.outcome, explanation.untold) == (
        None,
        LogOutcome.LOADING,
        True,
    )
    assert "ends while the server starts" in explanation.lines()[0]
    assert "line 5: Loading safetensors checkpoint shards:  50%" in explanation.lines()[0]
    again = explanation_of(*LOADING, MEMORY, GONE, *LOADING)
    assert (again.id, again.outcome) == ("MEMORY", LogOutcome.LOADING)
    assert any("ends while the server starts again" in line for line in again.lines())


def test_an_empty_log_is_reported() -> None:
    explanation = explanation_of()
    assert (explanation.id, explanation.outcome, explanation.untold) == (
        None,
        LogOutcome.EMPTY,
        True,
    )
    assert explanation.lines() == ["the log is empty: nothing was read, so nothing is diagnosed"]


def test_a_server_that_was_shut_down_did_not_fail() -> None:
    end = f"(APIServer pid=1) INFO {STAMP} [l.py:1] [shutdown] API server: stopping engine client"
    explanation = explanation_of(*HEALTHY, end)
    assert (explanation.id, explanation.outcome) == (None, LogOutcome.ENDED)


def test_an_interrupt_does_not_outrank_a_warning() -> None:
    explanation = explanation_of(*LOADING, WARNING, *APART, TRACEBACK[0], "KeyboardInterrupt")
    assert explanation.answer
    assert (explanation.id, explanation.answer.confidence) == ("MEMORY", Confidence.LIKELY)
