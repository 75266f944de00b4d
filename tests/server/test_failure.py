"""An explanation for a person: title, cause, next step and evidence."""

from __future__ import annotations

from dataclasses import replace

from pytest_vllm_gates.server.failure import Confidence, Diagnosis, Explanation, LogOutcome

ONE = Diagnosis(
    "MEMORY", "it is short of memory", "boot", "load", "failure", Confidence.LIKELY,
    "The cache does not fit.", ("give it more", "request less"), 7, "no memory",
)  # fmt: skip


def test_diagnosis_has_cause_fix_and_line() -> None:
    assert ONE.lines() == [
        "MEMORY (likely): it is short of memory",
        "  why:   The cache does not fit.",
        "  next:  give it more",
        "  or:    request less",
        "  seen:  line 7",
        "         no memory",
    ]


def test_diagnosis_lists_processes_count_and_machine_facts() -> None:
    ranks = tuple(f"Worker {number}" for number in range(5))
    diagnosis = replace(
        ONE, times=4, processes=ranks, supported_by=("little is free",),
        contradicted_by=("much is free",), references=("a", "b"),
    )  # fmt: skip
    assert diagnosis.lines()[4:] == [
        "  seen:  line 7, 4 times, by Worker 0, Worker 1, Worker 2 and 2 more",
        "         no memory",
        "  this machine agrees: little is free",
        "  this machine contradicts it: much is free",
        "  see:   a, b",
    ]
    few = replace(ONE, times=2, processes=ranks[:3])
    assert few.lines()[4] == "  seen:  line 7, 2 times, by Worker 0, Worker 1, Worker 2"


def test_exit_status_diagnosis_has_no_line() -> None:
    assert not any(line.startswith("  seen:") for line in replace(ONE, line=None).lines())


def test_unknown_error_is_shown_as_unknown() -> None:
    unknown = Explanation(error=("Traceback", "OddError: x"), error_line=3)
    assert (unknown.id, unknown.name) == ("UNKNOWN", "UNKNOWN, OddError: x")
    assert unknown.brief == "UNKNOWN: OddError: x"
    assert replace(unknown, error_text="OddError").brief == "UNKNOWN: OddError"
    assert unknown.lines() == [
        "UNKNOWN: no signature knows this failure", "", "the earliest error (line 3):",
        "    Traceback", "    OddError: x",
    ]  # fmt: skip


def test_survived_error_is_not_a_failure() -> None:
    survived = Explanation(error=("OddError: x",), error_line=3, survived=True, well=True)
    assert (survived.id, survived.name, survived.brief) == (None, "", "")
    assert survived.lines() == [
        "the log reports no failure", "",
        "the earliest error (line 3, after which the server went on serving):", "    OddError: x",
    ]  # fmt: skip
    assert Explanation().lines() == ["the log reports no error"]
    assert Explanation(error=("x",), well=True).lines()[2] == "the earliest error:"


def test_other_candidates_are_listed_after_the_answer() -> None:
    candidates = tuple(replace(ONE, id=f"N{number}", line=number or None) for number in range(4))
    explanation = Explanation(
        ONE, error=("x",), refused=True, candidates=candidates, wrappers=candidates[:1],
        warnings=candidates[1:2], outcome=LogOutcome.SERVES,
    )  # fmt: skip
    lines = explanation.lines()
    assert "  the server itself is well: it refused requests of this kind" in lines
    assert "an error that it does not explain:" in lines
    assert lines[-7:] == [
        "also possible: N0: it is short of memory",
        "also possible: N1 (line 1): it is short of memory",
        "also possible: N2 (line 2): it is short of memory",
        "", "reported by: N0: it is short of memory",
        "", "besides, a warning: N1 (line 1): it is short of memory",
    ]  # fmt: skip
    document = explanation.document()
    assert (document["id"], document["answer"]["class"]) == ("MEMORY", "boot")
    assert document["answer"]["confidence"] == "likely"
    assert [candidate["id"] for candidate in document["candidates"]] == ["N0", "N1", "N2", "N3"]
    assert Explanation().document()["answer"] is None
