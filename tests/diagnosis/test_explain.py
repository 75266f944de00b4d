"""The rules by which one of many lines becomes the answer, or none does."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.explaining import (
    COMMON,
    DISK_FULL,
    HEALTHY,
    MEMORY,
    MEMORY_SHORT,
    READY,
    STAMP,
    classes,
    explanation_of,
    signature,
)
from pytest_vllm_gates.diagnosis import explain
from pytest_vllm_gates.server.failure import Confidence

TRACEBACK = "Traceback (most recent call last):"
WRAPPER = "RuntimeError: the engine did not start"
TAPE_FULL = signature("TAPE", r"tape (?P<tape>\w+) is full")
TRIED = "the trial run has ended"
APART = [f"line {number} of something else" for number in range(200)]


def test_healthy_log_gives_no_diagnosis() -> None:
    explanation = explanation_of(*HEALTHY)
    assert (explanation.id, explanation.error, explanation.warnings, explanation.candidates) == (
        None,
        (),
        (),
        (),
    )
    assert explanation.lines() == [
        "the log reports no error",
        "  the server serves: it answers requests (line 7)",
    ]
    assert explanation.lines_read == len(HEALTHY)


def test_empty_log_gives_no_diagnosis() -> None:
    assert explanation_of().id is None
    assert explanation_of(exit_status=0).id is None


def test_failure_has_cause_fix_and_line() -> None:
    explanation = explanation_of(
        *HEALTHY, f"(EngineCore pid=2) ERROR {STAMP} [a.py:1] OSError: disk sda is full"
    )
    assert explanation.answer
    assert (explanation.id, explanation.answer.line) == ("DISK", len(HEALTHY) + 1)
    assert explanation.answer.quoted == "OSError: disk sda is full"
    assert dict(explanation.answer.captures) == {"disk": "sda"}
    assert explanation.lines()[0] == "DISK (certain): it is DISK"
    assert "  next:  mend DISK" in explanation.lines()


def test_captures_fill_cause_and_fixes() -> None:
    signature_table = signature("ONE", r"needs (?P<need>\S+) GiB", r"needs too much memory")
    signature_table["text"] = {
        "cause": "It needs {need} GiB.",
        "cause_plain": "It needs too much.",
        "fixes": ["add {need} GiB", "pass '{\"a\": 1}'"],
    }
    filled = explanation_of("it needs 12.5 GiB", by=classes(signature_table)).answer
    plain = explanation_of("it needs too much memory", by=classes(signature_table)).answer
    assert filled
    assert plain
    assert (filled.cause, filled.fixes) == (
        "It needs 12.5 GiB.",
        ("add 12.5 GiB", "pass '{\"a\": 1}'"),
    )
    assert (plain.cause, plain.fixes) == ("It needs too much.", ("pass '{\"a\": 1}'",))


def test_later_nearby_line_fills_missing_captures() -> None:
    signature_table = signature("ONE", "needs too much memory", r"needs (?P<need>\S+) GiB")
    diagnosis = explanation_of(
        "it needs too much memory", "it needs 9 GiB", by=classes(signature_table)
    ).answer
    assert diagnosis
    assert (diagnosis.line, diagnosis.times, dict(diagnosis.captures)) == (1, 2, {"need": "9"})


def test_wrapper_is_not_the_answer_if_there_is_a_failure() -> None:
    explanation = explanation_of(WRAPPER, *APART, MEMORY)
    assert (explanation.id, [wrapper.id for wrapper in explanation.wrappers]) == (
        "MEMORY",
        ["WRAPPER"],
    )


def test_wrapper_alone_is_a_possible_answer() -> None:
    explanation = explanation_of(*HEALTHY[:4], WRAPPER)
    assert explanation.answer
    assert (explanation.id, explanation.answer.confidence) == ("WRAPPER", Confidence.POSSIBLE)


def test_unknown_error_is_shown_instead_of_its_wrapper() -> None:
    explanation = explanation_of("before", TRACEBACK, "ValueError: a new one", "after", WRAPPER)
    assert (explanation.id, explanation.error_line) == ("UNKNOWN", 3)
    assert explanation.error == ("before", TRACEBACK, "ValueError: a new one", "after", WRAPPER)
    assert explanation.brief == "UNKNOWN: ValueError: a new one"


def test_earliest_of_several_unknown_errors_is_shown() -> None:
    explanation = explanation_of("ValueError: first", *APART, "ValueError: second")
    assert (explanation.error_line, explanation.error_text) == (1, "ValueError: first")


def test_traceback_below_a_wrapper_headline_is_searched() -> None:
    explanation = explanation_of(
        "ERROR the engine did not start", TRACEBACK, "ValueError: unheard of"
    )
    assert (explanation.id, explanation.error_text) == ("UNKNOWN", "ValueError: unheard of")


def test_earlier_unknown_error_lowers_confidence_and_is_shown() -> None:
    full = "OSError: disk sda is full"
    explanation = explanation_of(
        "ValueError: unheard of", *APART, full, *APART, "ValueError: later"
    )
    assert explanation.answer
    assert (explanation.id, explanation.error_line) == ("DISK", 1)
    assert explanation.answer.confidence is Confidence.LIKELY
    assert explanation_of(MEMORY, *APART, "ValueError: later").error == ()


def test_the_earliest_of_two_failures_is_the_root() -> None:
    explanation = explanation_of(MEMORY, *APART, "OSError: disk sda is full")
    assert (explanation.id, [candidate.id for candidate in explanation.candidates]) == (
        "MEMORY",
        ["DISK"],
    )


def test_in_one_error_block_the_more_specific_is_the_root() -> None:
    explanation = explanation_of(MEMORY, "OSError: disk sda is full")
    assert explanation.answer
    assert explanation.id == "DISK"
    assert explanation.answer.confidence is Confidence.CERTAIN
    explanation = explanation_of(
        "disk sda is full", MEMORY, by=classes(DISK_FULL, TAPE_FULL, MEMORY_SHORT)
    )
    assert explanation.answer
    assert explanation.answer.confidence is Confidence.CERTAIN
    explanation = explanation_of(
        "disk sda is full", "tape x is full", by=classes(DISK_FULL, TAPE_FULL)
    )
    assert explanation.answer
    assert (explanation.id, explanation.answer.confidence) == ("DISK", Confidence.LIKELY)


def test_chained_exceptions_are_one_block() -> None:
    chain = "The above exception was the direct cause of the following exception:"
    explanation = explanation_of(
        MEMORY, *APART[:40], chain, *APART[:40], "OSError: disk sda is full"
    )
    assert explanation.id == "DISK"
    assert explanation_of(MEMORY, *APART[:80], "OSError: disk sda is full").id == "MEMORY"


def test_more_specific_pattern_wins_on_one_line() -> None:
    short, long = signature("SHORT", "of memory"), signature("LONG", "short of memory")
    assert explanation_of(MEMORY, by=classes(short, long)).id == "LONG"
    assert explanation_of(MEMORY, by=classes(long, short)).id == "LONG"


def test_client_error_does_not_explain_a_dead_server() -> None:
    refusal = "ValueError: the prompt is too long"
    alone = explanation_of(*HEALTHY, refusal)
    assert (alone.id, alone.refused) == ("REFUSED", True)
    assert "  the server itself is well: it refused requests of this kind" in alone.lines()
    assert explanation_of(refusal, *APART, MEMORY).id == "MEMORY"
    assert explanation_of(refusal, *APART, "ValueError: unheard of", WRAPPER).id == "UNKNOWN"
    died = explanation_of(refusal, *APART, exit_status=1)
    assert (died.id, died.error[-1]) == ("UNKNOWN", APART[-1])


def test_warnings_are_listed_but_are_not_the_answer() -> None:
    explanation = explanation_of(*HEALTHY, "WARNING falling back to slow")
    assert (explanation.id, [warning.id for warning in explanation.warnings]) == (None, ["WARNED"])
    explanation = explanation_of("falling back to slow", *APART, MEMORY)
    assert (explanation.id, [warning.id for warning in explanation.warnings]) == (
        "MEMORY",
        ["WARNED"],
    )


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_message_of_several_ranks_is_reported_once(ranks: list[int]) -> None:
    lines = [f"(Worker_TP{rank} pid={rank}) ERROR {STAMP} [a.py:1] {MEMORY}" for rank in ranks]
    diagnosis = explanation_of(*lines).answer
    assert diagnosis
    assert (diagnosis.line, diagnosis.times) == (1, 4)
    assert diagnosis.processes == ("Worker_TP0", "Worker_TP1", "Worker_TP2", "Worker_TP3")
    assert diagnosis.confidence is Confidence.CERTAIN


@pytest.mark.parametrize(
    ("conditions", "before", "after", "met"),
    [
        ({"after": [TRIED]}, [TRIED], [], True),
        ({"after": [TRIED]}, [], [TRIED], False),
        ({"not_after": [TRIED]}, [TRIED], [], False),
        ({"not_after": [TRIED]}, [], [TRIED], True),
        ({"near": ["sampler"], "within": 5}, ["the sampler"], [], True),
        ({"near": ["sampler"], "within": 5}, [], ["a", "b", "the sampler"], True),
        ({"near": ["sampler"], "within": 5}, ["the sampler", *APART[:6]], [], False),
        ({"near": ["sampler"], "within": 5}, [], [*APART[:6], "the sampler"], False),
        ({"near": ["sampler", "graphs"], "within": 5}, ["the graphs"], [], True),
        ({"not_near": ["sampler"], "within": 5}, ["the sampler"], [], False),
        ({"not_near": ["sampler"], "within": 5}, [], ["the sampler"], False),
        ({"not_near": ["sampler"], "within": 5}, ["the sampler", *APART[:6]], APART[:9], True),
        ({"not_near": ["sampler"], "within": 5}, [], [], True),
    ],
)
def test_condition_must_be_met(
    conditions: dict[str, Any], before: list[str], after: list[str], met: bool
) -> None:
    signature_table = signature("ONE", "short of memory", when=conditions)
    explanation = explanation_of("start", *before, MEMORY, *after, by=classes(signature_table))
    assert explanation.id == ("ONE" if met else "UNKNOWN")


def test_signature_with_met_conditions_beats_the_general_one() -> None:
    run = signature("RUN", "short of memory", when={"after": [TRIED]})
    general = signature("GENERAL", "short of memory")
    assert explanation_of(TRIED, MEMORY, by=classes(general, run)).id == "RUN"
    assert explanation_of(MEMORY, TRIED, by=classes(general, run)).id == "GENERAL"


def test_conditions_hold_across_blocks() -> None:
    signature_table = signature(
        "ONE", "short of memory", when={"near": ["sampler"], "after": [READY]}
    )
    blocks = [f"{READY}\nthe sampler\n".encode(), b"x\n" * 5, f"{MEMORY}\n".encode()]
    assert explain.explain(blocks, classes(signature_table)).id == "ONE"
    blocks = [f"{READY}\n{MEMORY}\n".encode(), b"x\n" * 5, b"the sampler\n"]
    assert explain.explain(blocks, classes(signature_table)).id == "ONE"


@pytest.mark.parametrize(
    ("status", "answer", "sure"),
    [(-9, "ONE", Confidence.CERTAIN), (1, None, None), (None, "ONE", Confidence.LIKELY)],
)
def test_unknown_exit_status_lowers_the_confidence(
    status: int | None, answer: str | None, sure: Confidence | None
) -> None:
    signature_table = signature("ONE", "the end came suddenly", when={"exit_status": [-9, 137]})
    explanation = explanation_of(
        "the end came suddenly", by=classes(signature_table), exit_status=status
    )
    assert (explanation.answer.id if explanation.answer else None) == answer
    assert (explanation.answer.confidence if explanation.answer else None) == sure


def test_exit_status_is_the_answer_if_nothing_else_matches() -> None:
    killed = signature("KILLED", when={"exit_status": [-9]})
    by = (*COMMON, *classes(killed))
    explanation = explanation_of(*HEALTHY, by=by, exit_status=-9)
    assert explanation.answer
    assert (explanation.id, explanation.answer.line) == ("KILLED", None)
    assert explanation_of(*HEALTHY, MEMORY, by=by, exit_status=-9).id == "MEMORY"
    assert explanation_of(*HEALTHY, by=by).id is None


def test_failed_process_without_a_match_is_unknown() -> None:
    explanation = explanation_of(*HEALTHY, "the last words", exit_status=3)
    assert (explanation.id, explanation.error[-1]) == ("UNKNOWN", "the last words")
    assert explanation_of(*HEALTHY, exit_status=-15).id is None
    assert explanation_of(exit_status=3).error == ("the log is empty",)


def test_errors_after_shutdown_are_no_failure() -> None:
    end = f"(APIServer pid=1) INFO {STAMP} [l.py:1] [shutdown] API server: stopping engine client"
    explanation = explanation_of(*HEALTHY, end, TRACEBACK, WRAPPER, "ValueError: too late")
    assert (explanation.id, explanation.wrappers) == (None, ())
    assert explanation_of(*HEALTHY, MEMORY, end, WRAPPER).id == "MEMORY"


def test_last_failed_boot_is_explained() -> None:
    explanation = explanation_of(
        *HEALTHY, MEMORY, WRAPPER, *HEALTHY, "OSError: disk sda is full", WRAPPER
    )
    assert (explanation.id, [candidate.id for candidate in explanation.candidates]) == (
        "DISK",
        ["MEMORY"],
    )
    assert explanation_of(*HEALTHY, MEMORY, WRAPPER, *HEALTHY).id == "MEMORY"


def test_lines_of_an_earlier_boot_do_not_meet_conditions() -> None:
    run = signature("RUN", "short of memory", when={"after": [READY]})
    load = signature("LOAD", "short of memory", when={"not_after": [READY]})
    by = (*classes(run, load), *COMMON[1:])
    explanation = explanation_of(*HEALTHY, MEMORY, *HEALTHY[:4], MEMORY, by=by)
    assert (explanation.id, [candidate.id for candidate in explanation.candidates]) == (
        "LOAD",
        ["RUN"],
    )


def test_restarted_server_is_another_boot() -> None:
    load = signature("LOAD", "short of memory", when={"not_after": [READY]})
    assert explanation_of(*HEALTHY, *APART, *HEALTHY[:4], MEMORY, by=classes(load)).id == "LOAD"
    assert explanation_of(*HEALTHY, *APART, MEMORY, by=classes(load)).id == "UNKNOWN"
    loading_absent = signature("NEAR", "short of memory", when={"not_near": ["loading"]})
    two_boots = [*HEALTHY[:4], *APART[:25], "loading", *HEALTHY[:4], MEMORY, *HEALTHY[:2]]
    assert explanation_of(*two_boots, by=classes(loading_absent)).id == "NEAR"
    assert (
        explanation_of(*HEALTHY[:2], *HEALTHY[:2], READY, MEMORY, by=classes(load)).id == "UNKNOWN"
    )


@pytest.mark.parametrize(
    "line",
    [
        f"INFO {STAMP} [logger.py:1] Received request chat-1: prompt: '{MEMORY}'",
        f"DEBUG {STAMP} [logger.py:1] Generated response chat-1: output: '{MEMORY}'",
    ],
)
def test_client_text_in_the_log_is_not_matched(line: str) -> None:
    assert explanation_of(*HEALTHY, line).id is None


def test_traceback_code_lines_are_not_matched() -> None:
    code = [
        '  File "/x/short of memory.py", line 1, in f',
        '    raise MemoryShort("short of memory")',
    ]
    assert explanation_of(TRACEBACK, *code, "ValueError: something else").id == "UNKNOWN"
    prefix = f"(EngineCore pid=2) ERROR {STAMP} [a.py:1] "
    mixed = [prefix + code[0], f"(Worker_TP1 pid=3) ERROR {STAMP} [a.py:1] hello", prefix + code[1]]
    assert explanation_of(*mixed, "ValueError: something else").id == "UNKNOWN"
    assert explanation_of("    short of memory, in the words of gcc").id == "MEMORY"


@pytest.mark.parametrize(
    "line",
    [
        f"WARNING {STAMP} [a.py:1] Error in reading: OSError: no such file, trying again",
        "'(ReadTimeoutError(\"pool\"), 'x')' thrown while requesting HEAD https://x, retrying",
        "/x.py:1: DeprecationWarning: the old Error: is deprecated",
        f"INFO {STAMP} [a.py:1] Route: /v1/errors, Methods: POST",
    ],
)
def test_line_that_only_mentions_errors_is_not_an_error(line: str) -> None:
    assert explanation_of(*HEALTHY, line, *HEALTHY[-3:]).id is None


def test_survived_error_is_reported_as_survived() -> None:
    served = ['INFO: 1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'] * 40
    explanation = explanation_of(TRACEBACK, "ValueError: unheard of", *served)
    assert explanation.survived
    assert (explanation.id, explanation.name, explanation.well) == (None, "", True)
    assert "the server went on serving" in "\n".join(explanation.lines())
    explanation = explanation_of(*served, TRACEBACK, "ValueError: unheard of")
    assert (explanation.survived, explanation.id) == (False, "UNKNOWN")


def test_server_that_died_later_is_not_well() -> None:
    served = ['INFO: 1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'] * 40
    explanation = explanation_of(TRACEBACK, "ValueError: unheard of", *served, exit_status=1)
    assert (explanation.well, explanation.id) == (False, "UNKNOWN")


def test_progress_bar_hides_no_error() -> None:
    explanation = explanation_of(*HEALTHY, "Loading: 10%\rLoading: 20%\r" + MEMORY)
    assert explanation.answer
    assert (explanation.id, explanation.answer.line) == ("MEMORY", len(HEALTHY) + 1)


def test_undecodable_bytes_do_not_hide_an_error() -> None:
    assert explain.explain([b"\xff\xfe\n" + MEMORY.encode() + b"\xff"], COMMON).id == "MEMORY"


def test_error_near_a_known_one_is_in_its_block() -> None:
    assert explanation_of("ValueError: so it began", MEMORY).error == ()
    assert explanation_of("ValueError: so it began", *APART, MEMORY).error != ()


def test_match_pending_at_a_restart_belongs_to_the_old_boot() -> None:
    signature_table = signature(
        "ONE", "short of memory", when={"not_near": ["the sampler"], "within": 99}
    )
    explanation = explanation_of(
        *HEALTHY[:2], *APART[:25], MEMORY, *HEALTHY[:2], "the sampler", by=classes(signature_table)
    )
    assert explanation.answer and (explanation.id, explanation.answer.line) == ("ONE", 28)


def test_at_most_a_hundred_matches_are_pending() -> None:
    signature_table = signature(
        "ONE", "short of memory", when={"near": ["the sampler"], "within": 1000}
    )
    explanation = explanation_of(*[MEMORY] * 150, "the sampler", by=classes(signature_table))
    assert explanation.answer and (explanation.answer.line, explanation.answer.times) == (1, 100)


def test_indented_text_without_a_frame_is_not_code() -> None:
    assert explanation_of("what it explanation_of:", "    short of memory").id == "MEMORY"
    headline = f"(Worker_TP1 pid=3) ERROR {STAMP} [a.py:1] hello"
    assert explanation_of(headline, "    more of it", "    short of memory").id == "MEMORY"


def test_empty_progress_bar_part_is_ignored() -> None:
    assert explanation_of(f"Loading\r\r{MEMORY}\r").id == "MEMORY"


def test_first_line_counts_even_if_settled_after_a_later_one() -> None:
    signature_table = signature(
        "ONE", "short of memory", when={"near": ["the sampler"], "within": 40}
    )
    quoted = "Received request x: the sampler"
    explanation = explanation_of(MEMORY, quoted, MEMORY, "the sampler", by=classes(signature_table))
    assert explanation.answer and (explanation.answer.line, explanation.answer.times) == (1, 2)


def test_ignored_patterns_of_one_boot_count_in_the_next() -> None:
    run = signature("RUN", "short of memory", when={"after": [READY]})
    first_boot = [*HEALTHY, *[READY] * 1100]
    blocks = [first_boot, [*APART], [*HEALTHY[:2], READY, MEMORY]]
    text = ["".join(f"{line}\n" for line in lines).encode() for lines in blocks]
    assert explain.explain(text, classes(run)).id == "RUN"
