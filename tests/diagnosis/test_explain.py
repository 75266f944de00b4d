"""Each rule by which one of many lines becomes the answer, or none does."""

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
    said,
    signature,
)
from pytest_vllm_gates.diagnosis import explain
from pytest_vllm_gates.server.failure import Confidence

TRACEBACK = "Traceback (most recent call last):"
WRAPPER = "RuntimeError: the engine did not start"
TAPE_FULL = signature("TAPE", r"tape (?P<tape>\w+) is full")
APART = [f"line {number} of something else" for number in range(200)]


def test_a_healthy_log_has_nothing_claimed_of_it() -> None:
    explanation = said(*HEALTHY)
    assert (explanation.id, explanation.error, explanation.warnings, explanation.candidates) == (
        None,
        (),
        (),
        (),
    )
    assert explanation.lines() == ["nothing wrong is said"]
    assert explanation.lines_read == len(HEALTHY)


def test_an_empty_log_says_nothing() -> None:
    assert said().id is None
    assert said(exit_status=0).id is None


def test_a_failure_is_told_with_cause_fix_and_line() -> None:
    explanation = said(
        *HEALTHY, f"(EngineCore pid=2) ERROR {STAMP} [a.py:1] OSError: disk sda is full"
    )
    assert explanation.answer
    assert (explanation.id, explanation.answer.line) == ("DISK", len(HEALTHY) + 1)
    assert explanation.answer.quoted == "OSError: disk sda is full"
    assert dict(explanation.answer.captures) == {"disk": "sda"}
    assert explanation.lines()[0] == "DISK (certain): it is DISK"
    assert "  next:  mend DISK" in explanation.lines()


def test_captures_fill_cause_and_fixes() -> None:
    entry = signature("ONE", r"needs (?P<need>\S+) GiB", r"needs too much memory")
    entry["text"] = {
        "cause": "It needs {need} GiB.",
        "cause_plain": "It needs too much.",
        "fixes": ["add {need} GiB", "pass '{\"a\": 1}'"],
    }
    filled = said("it needs 12.5 GiB", by=classes(entry)).answer
    plain = said("it needs too much memory", by=classes(entry)).answer
    assert filled
    assert plain
    assert (filled.cause, filled.fixes) == (
        "It needs 12.5 GiB.",
        ("add 12.5 GiB", "pass '{\"a\": 1}'"),
    )
    assert (plain.cause, plain.fixes) == ("It needs too much.", ("pass '{\"a\": 1}'",))


def test_a_later_line_nearby_fills_what_the_first_one_misses() -> None:
    entry = signature("ONE", "needs too much memory", r"needs (?P<need>\S+) GiB")
    diagnosis = said("it needs too much memory", "it needs 9 GiB", by=classes(entry)).answer
    assert diagnosis
    assert (diagnosis.line, diagnosis.times, dict(diagnosis.captures)) == (1, 2, {"need": "9"})


def test_a_wrapper_is_never_the_answer_beside_a_failure() -> None:
    explanation = said(WRAPPER, *APART, MEMORY)
    assert (explanation.id, [wrapper.id for wrapper in explanation.wrappers]) == (
        "MEMORY",
        ["WRAPPER"],
    )


def test_a_wrapper_alone_is_the_answer_and_no_more_than_possible() -> None:
    explanation = said(*HEALTHY[:4], WRAPPER)
    assert explanation.answer
    assert (explanation.id, explanation.answer.confidence) == ("WRAPPER", Confidence.POSSIBLE)


def test_an_error_that_nobody_knows_is_told_and_not_its_wrapper() -> None:
    explanation = said("before", TRACEBACK, "ValueError: a new one", "after", WRAPPER)
    assert (explanation.id, explanation.error_line) == ("UNKNOWN", 3)
    assert explanation.error == ("before", TRACEBACK, "ValueError: a new one", "after", WRAPPER)
    assert explanation.brief == "UNKNOWN: ValueError: a new one"


def test_of_several_unknown_errors_the_earliest_is_told() -> None:
    explanation = said("ValueError: first", *APART, "ValueError: second")
    assert (explanation.error_line, explanation.error_text) == (1, "ValueError: first")


def test_the_traceback_below_a_wrappers_headline_is_looked_into() -> None:
    explanation = said("ERROR the engine did not start", TRACEBACK, "ValueError: unheard of")
    assert (explanation.id, explanation.error_text) == ("UNKNOWN", "ValueError: unheard of")


def test_an_earlier_unknown_error_lowers_the_confidence_and_is_shown() -> None:
    full = "OSError: disk sda is full"
    explanation = said("ValueError: unheard of", *APART, full, *APART, "ValueError: later")
    assert explanation.answer
    assert (explanation.id, explanation.error_line) == ("DISK", 1)
    assert explanation.answer.confidence is Confidence.LIKELY
    assert said(MEMORY, *APART, "ValueError: later").error == ()


def test_the_earliest_of_two_failures_is_the_root() -> None:
    explanation = said(MEMORY, *APART, "OSError: disk sda is full")
    assert (explanation.id, [candidate.id for candidate in explanation.candidates]) == (
        "MEMORY",
        ["DISK"],
    )


def test_in_one_error_block_the_more_specific_is_the_root() -> None:
    explanation = said(MEMORY, "OSError: disk sda is full")
    assert explanation.answer
    assert explanation.id == "DISK"
    assert explanation.answer.confidence is Confidence.CERTAIN
    explanation = said("disk sda is full", MEMORY, by=classes(DISK_FULL, TAPE_FULL, MEMORY_SHORT))
    assert explanation.answer
    assert explanation.answer.confidence is Confidence.CERTAIN
    explanation = said("disk sda is full", "tape x is full", by=classes(DISK_FULL, TAPE_FULL))
    assert explanation.answer
    assert (explanation.id, explanation.answer.confidence) == ("DISK", Confidence.LIKELY)


def test_exceptions_of_which_one_led_to_the_other_are_one_block() -> None:
    chain = "The above exception was the direct cause of the following exception:"
    explanation = said(MEMORY, *APART[:40], chain, *APART[:40], "OSError: disk sda is full")
    assert explanation.id == "DISK"
    assert said(MEMORY, *APART[:80], "OSError: disk sda is full").id == "MEMORY"


def test_on_one_line_the_pattern_that_says_more_wins() -> None:
    short, long = signature("SHORT", "of memory"), signature("LONG", "short of memory")
    assert said(MEMORY, by=classes(short, long)).id == "LONG"
    assert said(MEMORY, by=classes(long, short)).id == "LONG"


def test_what_a_client_did_wrong_explains_no_death() -> None:
    refused = "ValueError: the prompt is too long"
    alone = said(*HEALTHY, refused)
    assert (alone.id, alone.refused) == ("REFUSED", True)
    assert "  the server itself is well: it refused requests of this kind" in alone.lines()
    assert said(refused, *APART, MEMORY).id == "MEMORY"
    assert said(refused, *APART, "ValueError: unheard of", WRAPPER).id == "UNKNOWN"
    died = said(refused, *APART, exit_status=1)
    assert (died.id, died.error[-1]) == ("UNKNOWN", APART[-1])


def test_warnings_stand_beside_the_answer_and_are_none_themselves() -> None:
    explanation = said(*HEALTHY, "WARNING falling back to slow")
    assert (explanation.id, [warning.id for warning in explanation.warnings]) == (None, ["WARNED"])
    explanation = said("falling back to slow", *APART, MEMORY)
    assert (explanation.id, [warning.id for warning in explanation.warnings]) == (
        "MEMORY",
        ["WARNED"],
    )


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_what_several_ranks_say_is_told_once(ranks: list[int]) -> None:
    lines = [f"(Worker_TP{rank} pid={rank}) ERROR {STAMP} [a.py:1] {MEMORY}" for rank in ranks]
    diagnosis = said(*lines).answer
    assert diagnosis
    assert (diagnosis.line, diagnosis.times) == (1, 4)
    assert diagnosis.processes == ("Worker_TP0", "Worker_TP1", "Worker_TP2", "Worker_TP3")
    assert diagnosis.confidence is Confidence.CERTAIN


@pytest.mark.parametrize(
    ("when", "before", "after", "meant"),
    [
        ({"after": [READY]}, [READY], [], True),
        ({"after": [READY]}, [], [READY], False),
        ({"not_after": [READY]}, [READY], [], False),
        ({"not_after": [READY]}, [], [READY], True),
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
def test_a_condition_must_hold(
    when: dict[str, Any], before: list[str], after: list[str], meant: bool
) -> None:
    entry = signature("ONE", "short of memory", when=when)
    explanation = said("start", *before, MEMORY, *after, by=classes(entry))
    assert explanation.id == ("ONE" if meant else "UNKNOWN")


def test_the_signature_whose_conditions_hold_beats_the_general_one() -> None:
    run = signature("RUN", "short of memory", when={"after": [READY]})
    general = signature("GENERAL", "short of memory")
    assert said(READY, MEMORY, by=classes(general, run)).id == "RUN"
    assert said(MEMORY, READY, by=classes(general, run)).id == "GENERAL"


def test_conditions_hold_across_blocks() -> None:
    entry = signature("ONE", "short of memory", when={"near": ["sampler"], "after": [READY]})
    blocks = [f"{READY}\nthe sampler\n".encode(), b"x\n" * 5, f"{MEMORY}\n".encode()]
    assert explain.explain(blocks, classes(entry)).id == "ONE"
    blocks = [f"{READY}\n{MEMORY}\n".encode(), b"x\n" * 5, b"the sampler\n"]
    assert explain.explain(blocks, classes(entry)).id == "ONE"


@pytest.mark.parametrize(
    ("status", "answer", "sure"),
    [(-9, "ONE", Confidence.CERTAIN), (1, None, None), (None, "ONE", Confidence.LIKELY)],
)
def test_an_exit_status_that_is_not_known_counts_against_it(
    status: int | None, answer: str | None, sure: Confidence | None
) -> None:
    entry = signature("ONE", "the end came suddenly", when={"exit_status": [-9, 137]})
    explanation = said("the end came suddenly", by=classes(entry), exit_status=status)
    assert (explanation.answer.id if explanation.answer else None) == answer
    assert (explanation.answer.confidence if explanation.answer else None) == sure


def test_an_exit_status_alone_is_an_answer_where_nothing_else_is() -> None:
    killed = signature("KILLED", when={"exit_status": [-9]})
    by = (*COMMON, *classes(killed))
    explanation = said(*HEALTHY, by=by, exit_status=-9)
    assert explanation.answer
    assert (explanation.id, explanation.answer.line) == ("KILLED", None)
    assert said(*HEALTHY, MEMORY, by=by, exit_status=-9).id == "MEMORY"
    assert said(*HEALTHY, by=by).id is None


def test_a_process_that_failed_without_a_known_word_is_unknown() -> None:
    explanation = said(*HEALTHY, "the last words", exit_status=3)
    assert (explanation.id, explanation.error[-1]) == ("UNKNOWN", "the last words")
    assert said(*HEALTHY, exit_status=-15).id is None
    assert said(exit_status=3).error == ("the log is empty",)


def test_what_breaks_after_the_end_was_asked_for_is_no_failure() -> None:
    end = f"(APIServer pid=1) INFO {STAMP} [l.py:1] [shutdown] API server: stopping engine client"
    explanation = said(*HEALTHY, end, TRACEBACK, WRAPPER, "ValueError: too late")
    assert (explanation.id, explanation.wrappers) == (None, ())
    assert said(*HEALTHY, MEMORY, end, WRAPPER).id == "MEMORY"


def test_of_several_boots_the_last_that_failed_is_explained() -> None:
    explanation = said(*HEALTHY, MEMORY, WRAPPER, *HEALTHY, "OSError: disk sda is full", WRAPPER)
    assert (explanation.id, [candidate.id for candidate in explanation.candidates]) == (
        "DISK",
        ["MEMORY"],
    )
    assert said(*HEALTHY, MEMORY, WRAPPER, *HEALTHY).id == "MEMORY"


def test_what_came_before_an_earlier_boot_ended_is_no_condition_of_this_one() -> None:
    run = signature("RUN", "short of memory", when={"after": [READY]})
    load = signature("LOAD", "short of memory", when={"not_after": [READY]})
    by = (*classes(run, load), *COMMON[1:])
    explanation = said(*HEALTHY, MEMORY, *HEALTHY[:4], MEMORY, by=by)
    assert (explanation.id, [candidate.id for candidate in explanation.candidates]) == (
        "LOAD",
        ["RUN"],
    )


def test_a_server_that_was_killed_and_started_anew_is_another_boot() -> None:
    load = signature("LOAD", "short of memory", when={"not_after": [READY]})
    assert said(*HEALTHY, *APART, *HEALTHY[:4], MEMORY, by=classes(load)).id == "LOAD"
    assert said(*HEALTHY, *APART, MEMORY, by=classes(load)).id == "UNKNOWN"
    near = signature("NEAR", "short of memory", when={"not_near": ["loading"]})
    again = [*HEALTHY[:4], *APART[:25], "loading", *HEALTHY[:4], MEMORY, *HEALTHY[:2]]
    assert said(*again, by=classes(near)).id == "NEAR"
    assert said(*HEALTHY[:2], *HEALTHY[:2], READY, MEMORY, by=classes(load)).id == "UNKNOWN"


@pytest.mark.parametrize(
    "line",
    [
        f"INFO {STAMP} [logger.py:1] Received request chat-1: prompt: '{MEMORY}'",
        f"DEBUG {STAMP} [logger.py:1] Generated response chat-1: output: '{MEMORY}'",
    ],
)
def test_what_a_client_sent_betrays_nothing(line: str) -> None:
    assert said(*HEALTHY, line).id is None


def test_the_code_of_a_traceback_betrays_nothing() -> None:
    code = [
        '  File "/x/short of memory.py", line 1, in f',
        '    raise MemoryShort("short of memory")',
    ]
    assert said(TRACEBACK, *code, "ValueError: something else").id == "UNKNOWN"
    prefix = f"(EngineCore pid=2) ERROR {STAMP} [a.py:1] "
    mixed = [prefix + code[0], f"(Worker_TP1 pid=3) ERROR {STAMP} [a.py:1] hello", prefix + code[1]]
    assert said(*mixed, "ValueError: something else").id == "UNKNOWN"
    assert said("    short of memory, as gcc would say it").id == "MEMORY"


@pytest.mark.parametrize(
    "line",
    [
        f"WARNING {STAMP} [a.py:1] Error in reading: OSError: no such file, trying again",
        "'(ReadTimeoutError(\"pool\"), 'x')' thrown while requesting HEAD https://x, retrying",
        "/x.py:1: DeprecationWarning: the old Error: is deprecated",
        f"INFO {STAMP} [a.py:1] Route: /v1/errors, Methods: POST",
    ],
)
def test_a_line_that_only_speaks_of_errors_is_none(line: str) -> None:
    assert said(*HEALTHY, line, *HEALTHY[-3:]).id is None


def test_an_error_that_the_server_survived_is_told_as_such() -> None:
    served = ['INFO: 1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'] * 40
    explanation = said(TRACEBACK, "ValueError: unheard of", *served)
    assert explanation.survived
    assert (explanation.id, explanation.name, explanation.well) == (None, "", True)
    assert "the server went on serving" in "\n".join(explanation.lines())
    explanation = said(*served, TRACEBACK, "ValueError: unheard of")
    assert (explanation.survived, explanation.id) == (False, "UNKNOWN")


def test_a_server_that_went_down_after_all_was_not_well() -> None:
    served = ['INFO: 1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'] * 40
    explanation = said(TRACEBACK, "ValueError: unheard of", *served, exit_status=1)
    assert (explanation.well, explanation.id) == (False, "UNKNOWN")


def test_a_progress_bar_hides_nothing() -> None:
    explanation = said(*HEALTHY, "Loading: 10%\rLoading: 20%\r" + MEMORY)
    assert explanation.answer
    assert (explanation.id, explanation.answer.line) == ("MEMORY", len(HEALTHY) + 1)


def test_bytes_that_do_not_decode_hide_nothing() -> None:
    assert explain.explain([b"\xff\xfe\n" + MEMORY.encode() + b"\xff"], COMMON).id == "MEMORY"


def test_an_error_beside_one_that_is_known_is_of_its_block() -> None:
    assert said("ValueError: so it began", MEMORY).error == ()
    assert said("ValueError: so it began", *APART, MEMORY).error != ()


def test_a_match_that_waits_when_the_server_is_started_anew_is_still_the_old_boots() -> None:
    entry = signature("ONE", "short of memory", when={"not_near": ["the sampler"], "within": 99})
    explanation = said(
        *HEALTHY[:2], *APART[:25], MEMORY, *HEALTHY[:2], "the sampler", by=classes(entry)
    )
    assert explanation.answer and (explanation.id, explanation.answer.line) == ("ONE", 28)


def test_of_a_match_told_without_end_a_hundred_wait() -> None:
    entry = signature("ONE", "short of memory", when={"near": ["the sampler"], "within": 1000})
    explanation = said(*[MEMORY] * 150, "the sampler", by=classes(entry))
    assert explanation.answer and (explanation.answer.line, explanation.answer.times) == (1, 100)


def test_indented_text_below_no_frame_is_no_code() -> None:
    assert said("what it said:", "    short of memory").id == "MEMORY"
    other = f"(Worker_TP1 pid=3) ERROR {STAMP} [a.py:1] hello"
    assert said(other, "    more of it", "    short of memory").id == "MEMORY"


def test_an_empty_part_of_a_progress_bar_is_nothing() -> None:
    assert said(f"Loading\r\r{MEMORY}\r").id == "MEMORY"


def test_the_first_line_counts_though_a_later_one_was_sure_before_it() -> None:
    entry = signature("ONE", "short of memory", when={"near": ["the sampler"], "within": 40})
    quoted = "Received request x: the sampler"
    explanation = said(MEMORY, quoted, MEMORY, "the sampler", by=classes(entry))
    assert explanation.answer and (explanation.answer.line, explanation.answer.times) == (1, 2)


def test_what_was_passed_over_in_one_boot_counts_in_the_next() -> None:
    run = signature("RUN", "short of memory", when={"after": [READY]})
    first = [*HEALTHY, *[READY] * 1100]
    blocks = [first, [*APART], [*HEALTHY[:2], READY, MEMORY]]
    text = ["".join(f"{line}\n" for line in lines).encode() for lines in blocks]
    assert explain.explain(text, classes(run)).id == "RUN"
