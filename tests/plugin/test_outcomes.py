"""What a run comes to: the words in the terminal, the exit status and the verdict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from survivors import none_of

from pytest_vllm_gates.facts import family

if TYPE_CHECKING:
    from conftest import Project

QUICK = ("-m", "boot")
OWN_GATE = """
import pytest
from pytest_vllm_gates.facts.errors import UserError
from pytest_vllm_gates.facts.outcome import *

def test_own(server, family, evidence):
    evidence["seen"] = {"url": server.base_url, "family": family.name}
    CODE
"""


def verdict_lines(result: pytest.RunResult) -> list[str]:
    """Return the verdict and its reasons as they are shown."""
    at = next(i for i, line in enumerate(result.outlines) if line.startswith("verdict: "))
    reasons = [line for line in result.outlines[at + 1 :] if line.startswith("  - ")]
    return [result.outlines[at], *reasons]


def own(project: Project, code: str) -> None:
    project.write("mine/test_own.py", OWN_GATE.replace("CODE", code))


def test_a_sound_server_is_promoted(project: Project) -> None:
    result = project.gates("--junitxml", "junit.xml", "--require-promotion")
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: PROMOTE",
        "  - all 3 applicable gates passed (11 tests)",
    ]
    told = result.stdout.str()
    assert "vllm gates: lane fake (asked for): a fake server" in told
    assert "vllm gates: qwen3.5, checkpoint miniature" in told
    assert re.search(r"^qwen3\.5  boot +PASS +5 tests +\d+\.\d s$", told, re.MULTILINE)
    assert re.search(r"^qwen3\.5  words +PASS +3 tests +\d+\.\d s$", told, re.MULTILINE)
    assert f"verdict: {project.report / 'verdict.json'}" in told

    found = project.verdict()
    assert (found["promotion"], found["exit_status"]) == ("PROMOTE", 0)
    assert found["lane"]["name"] == "fake"
    (family,) = found["families"]
    assert family["boot"]["ok"] is True
    assert set(family["boot"]["times"]) == {"health_s", "first_chat_s", "first_token_s"}
    seen = {test["test"]: test["evidence"] for gate in family["gates"] for test in gate["tests"]}
    assert seen["test_boots[qwen3.5]"]["boot_attempts"] == 1
    assert seen["test_refuses_a_wrong_key[qwen3.5]"] == {"status": 401}
    assert seen["test_answers_sensibly[qwen3.5]"]["answer"]["content"].startswith("Paris")

    junit = (project.path / "junit.xml").read_text()
    assert '<property name="outcome" value="PASS"' in junit
    assert '<property name="status" value="401"' in junit
    assert 'classname="gates.test_boot"' in junit

    key = project.key_file.read_text()
    assert len(key) >= 32
    for path in (*project.report.rglob("*"), project.path / "junit.xml"):
        assert path.is_dir() or key not in path.read_text(), f"the API key is in {path}"
    assert key not in told

    log = (project.report / "qwen3.5" / "server.log").read_text()
    assert none_of({int(pid) for pid in re.findall(r"pid=(\d+)", log)})


def test_a_server_that_does_not_boot_fails_one_test_and_blocks_the_others(
    project: Project,
) -> None:
    result = project.gates(faults="dies")
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_boots[]") == "FAIL"
    assert set(outcomes.values()) == {"BLOCKED"}
    told = result.stdout.str()
    assert "the server ended before it was ready (exit status 1)" in told
    assert "         ValueError: No available memory for the cache blocks." in told
    assert "KV_NONE (certain): nothing is left for the KV cache" in told.splitlines()
    assert re.search(r"^  next: +\S+", told, re.MULTILINE)
    assert "Traceback" not in told
    assert "1 failed, 10 blocked" in told
    boot = project.verdict()["families"][0]["boot"]
    assert boot["ok"] is False
    explained = boot["explanation"]
    assert (explained["id"], explained["answer"]["class"]) == ("KV_NONE", "kv_cache")
    assert [one["id"] for one in explained["wrappers"]] == ["ENGINE_INIT"]
    ended = "the server ended before it was ready (exit status 1)"
    named = "KV_NONE (certain): nothing is left for the KV cache"
    what = f"the server did not boot: {ended}: {named}; next: {explained['answer']['fixes'][0]}"
    assert verdict_lines(result) == [
        "verdict: REJECT",
        f"  - qwen3.5: boot is FAIL: {ended}: KV_NONE, nothing is left for the KV cache",
        f"  - qwen3.5: 2 gates are BLOCKED: {what} (streaming, words)",
    ]


def test_a_server_that_dies_of_a_test_fails_that_one_and_blocks_the_rest(
    project: Project,
) -> None:
    result = project.gates(faults="dies-after:3")
    assert result.ret == 1
    outcomes = project.outcomes()
    assert [test for test, outcome in outcomes.items() if outcome == "FAIL"] == [
        "streaming::test_streamed_answer_equals_the_whole[plain]"
    ]
    assert list(outcomes.values()).count("PASS") == 4
    assert list(outcomes.values()).count("BLOCKED") == 6
    told = result.stdout.str()
    assert "the server died while serving (exit status 9)" in told
    assert "torch.AcceleratorError: CUDA error: an illegal memory access" in told
    gone = "  - qwen3.5: 2 gates are BLOCKED: the server is gone: the server died while serving "
    (line,) = (line for line in verdict_lines(result) if line.startswith(gone))
    assert line.startswith(f"{gone}(exit status 9): IMA (")
    assert "; next: " in line


@pytest.mark.parametrize(
    ("faults", "test", "told"),
    [
        (
            "bangs",
            "boot::test_answers_sensibly[]",
            "asked 'What is the capital of France?': the answer is only punctuation: '!!!",
        ),
        (
            "any-key",
            "boot::test_refuses_a_wrong_key[]",
            "a wrong key was answered 200, not 401: who reaches the port may use it",
        ),
    ],
)
def test_a_fault_turns_one_test_red(project: Project, faults: str, test: str, told: str) -> None:
    result = project.gates(*QUICK, faults=faults)
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop(test) == "FAIL"
    assert set(outcomes.values()) == {"PASS"}
    assert told in result.stdout.str()
    assert verdict_lines(result)[0] == "verdict: REJECT"


def test_reasoning_lost_in_the_stream_turns_streaming_red_alone(project: Project) -> None:
    result = project.gates(faults="loses-reasoning")
    assert result.ret == 1
    gates = {gate["gate"]: gate["outcome"] for gate in project.verdict()["families"][0]["gates"]}
    assert gates == {"boot": "PASS", "streaming": "FAIL", "words": "PASS"}
    assert "reasoning: empty in the streamed answer, 'The user asks" in result.stdout.str()


# Goldens.


def forget(project: Project) -> None:
    """Let one conversation have no golden."""
    project.write(
        "conversations/new.toml", 'title = "new"\n[[messages]]\nrole = "user"\ncontent = "Hm?"\n'
    )


def test_a_golden_that_is_missing_is_told_with_the_command_that_records_it(
    project: Project,
) -> None:
    forget(project)
    result = project.gates()
    assert result.ret == 1
    assert project.outcomes()["words::test_words_are_the_recorded[new]"] == "MISSING"
    record = "pytest --model qwen3.5 -m words --update-golden"
    assert verdict_lines(result) == [
        "verdict: HOLD",
        f"  - qwen3.5: words is MISSING: no golden 'new'; record it: {record}",
    ]
    golden = project.path / "golden" / "qwen3.5" / "miniature" / "new.txt"
    assert f"it would be {golden}" in str(project.verdict())
    assert not golden.exists()
    assert "11 passed, 1 missing" in result.stdout.str()


def test_a_recording_run_holds_and_the_next_one_passes(project: Project) -> None:
    forget(project)
    folder = project.path / "golden" / "qwen3.5" / "miniature"
    result = project.gates("--update-golden")
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - this run recorded goldens (1 written): run it again without --update-golden",
    ]
    assert f"  recorded (new): {folder / 'new.txt'}" in result.outlines
    assert [path.name for path in folder.iterdir()] == ["new.txt"]
    assert project.gates("--require-promotion").ret == 0
    assert project.verdict()["promotion"] == "PROMOTE"


def test_a_recording_run_that_changes_nothing_still_holds(project: Project) -> None:
    result = project.gates("--update-golden", "--require-promotion")
    assert result.ret == 6
    assert "(0 written)" in verdict_lines(result)[1]
    assert not (project.path / "golden").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("golden 1: lock: x\n\n12  mess", "has no last line 'end of golden': it was cut short"),
        ("<<<<<<< HEAD\n=======\n>>>>>>> x\n", "holds the marks of an unresolved merge"),
    ],
)
def test_a_corrupt_golden_fails_and_is_replaced_when_recording(
    project: Project, text: str, told: str
) -> None:
    path = project.write("golden/qwen3.5/miniature/plain.txt", text)
    arguments = ("-m", "words", "-k", "plain")
    result = project.gates(*arguments)
    assert result.ret == 1
    assert project.outcomes() == {"words::test_words_are_the_recorded[plain]": "FAIL"}
    assert f"the golden is corrupt: {path} {told}" in result.stdout.str()
    assert "restore it (git checkout -- plain.txt) or record it again" in result.stdout.str()
    assert path.read_text() == text

    result = project.gates(*arguments, "--update-golden")
    assert result.ret == 0
    assert f"  recorded (new): {path}" in result.outlines
    assert project.gates(*arguments).ret == 0


def test_a_golden_that_differs_fails_with_the_lines_that_do(project: Project) -> None:
    changed = "golden 1: lock: one question, nothing else\n\n0123  messages\n\nend of golden\n"
    path = project.write("golden/qwen3.5/miniature/plain.txt", changed)
    result = project.gates("-m", "words")
    assert result.ret == 1
    told = result.stdout.str()
    assert f"plain is not what was recorded in {path}" in told
    assert re.search(r"^E +- 0123  messages$", told, re.MULTILINE)
    assert "\x1b" not in told + project.verdict()["families"][0]["gates"][0]["reason"]
    assert "accept it: pytest --model qwen3.5 -m words --update-golden" in told
    assert path.read_text() == changed


# What a run does not see holds it.


@pytest.mark.parametrize(("require", "status"), [((), 0), (("--require-promotion",), 6)])
def test_a_run_of_some_gates_holds(project: Project, require: tuple[str, ...], status: int) -> None:
    result = project.gates(*QUICK, *require)
    assert result.ret == status
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - qwen3.5: 2 gates did not run: streaming, words",
    ]
    assert project.verdict()["exit_status"] == status


def test_a_gate_of_which_a_part_was_deselected_holds(project: Project) -> None:
    result = project.gates(
        "--deselect", "gates/test_words.py::test_words_are_the_recorded[qwen3.5-plain]"
    )
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - 1 tests of the gates that ran were deselected",
    ]


def test_a_run_in_which_nothing_runs_holds(project: Project) -> None:
    result = project.gates("-k", "nothing_of_that_name")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert verdict_lines(result)[0] == "verdict: HOLD"
    assert project.verdict()["promotion"] == "HOLD"


def test_a_rejected_run_is_one_when_promotion_is_required(project: Project) -> None:
    assert project.gates(*QUICK, "--require-promotion", faults="bangs").ret == 1


def test_an_interrupted_run_holds(project: Project) -> None:
    own(project, "raise KeyboardInterrupt")
    result = project.gates("mine", "-k", "test_own or test_boots")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    lines = verdict_lines(result)
    assert lines[0] == "verdict: HOLD"
    assert "  - the run was interrupted" in lines
    assert project.verdict()["promotion"] == "HOLD"
    log = (project.report / "qwen3.5" / "server.log").read_text()
    assert none_of({int(pid) for pid in re.findall(r"pid=(\d+)", log)})


def test_a_run_that_stops_at_the_first_failure_says_what_it_did_not_see(
    project: Project,
) -> None:
    result = project.gates("-x", faults="bangs")
    assert result.ret == 1
    lines = verdict_lines(result)
    assert lines[0] == "verdict: REJECT"
    assert "  - 8 tests were collected and did not run to their end" in lines


def test_gates_that_cannot_be_collected_never_promote(project: Project) -> None:
    project.write("mine/test_own.py", "import nothing_of_that_name\n")
    result = project.gates("mine")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert verdict_lines(result)[0] == "verdict: HOLD"


# Gates of a project's own.


def test_a_gate_of_ones_own_runs_beside_the_shipped_ones(project: Project) -> None:
    own(project, "assert family.name == 'qwen3.5'")
    result = project.gates("mine")
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: PROMOTE",
        "  - all 4 applicable gates passed (12 tests)",
    ]
    gate = project.verdict()["families"][0]["gates"][-1]
    assert gate["gate"] == "own"
    assert gate["tests"][0]["evidence"]["seen"]["family"] == "qwen3.5"


@pytest.mark.parametrize(
    ("code", "outcome", "letter", "status"),
    [
        ("assert 0, 'not so'", "FAIL", "F", 1),
        ("raise ValueError('a bug')", "FAIL", "F", 1),
        ("pytest.fail('no', pytrace=False)", "FAIL", "F", 1),
        ("raise Blocked('no database')", "BLOCKED", "B", 1),
        ("raise UserError('no such file')", "BLOCKED", "B", 1),
        ("raise MissingGolden('none')", "MISSING", "M", 1),
        ("raise MissingBaseline('none')", "MISSING", "M", 0),
        ("raise Inconclusive('noise')", "INCONCLUSIVE", "I", 0),
        ("raise NotApplicable('no tools')", "N/A", "-", 0),
        ("pytest.skip('later')", "INCONCLUSIVE", "I", 0),
    ],
)
def test_each_outcome_has_its_own_word_letter_and_status(
    project: Project, code: str, outcome: str, letter: str, status: int
) -> None:
    own(project, code)
    reason = code.split("'")[1]
    result = project.gates("mine", "-k", "test_own")
    assert result.ret == status
    assert project.outcomes() == {"own::test_own[]": outcome}
    (gate,) = project.verdict()["families"][0]["gates"]
    assert reason in gate["reason"].splitlines()[0]
    assert gate["tests"][0]["evidence"]["seen"]
    told = result.stdout.str()
    assert re.search(rf"^(mine/test_own\.py )?{letter} +\[100%\]$", told, re.MULTILINE)
    assert re.search(rf"^qwen3\.5  own  {re.escape(outcome)} +1 test ", told, re.MULTILINE)
    if outcome not in ("FAIL", "N/A"):
        assert f"  - qwen3.5: own is {outcome}: {gate['reason']}" in verdict_lines(result)
    assert verdict_lines(result)[0] == f"verdict: {'REJECT' if outcome == 'FAIL' else 'HOLD'}"


def test_outcomes_are_words_when_asked_for_more(project: Project) -> None:
    own(project, "raise Inconclusive('noise')")
    result = project.gates("mine", "-v", "-k", "test_own or test_boots")
    told = result.stdout.str()
    assert "gates/test_boot.py::test_boots[qwen3.5] PASSED" in told
    assert re.search(r"test_own\.py::test_own\[qwen3\.5\] INCONCLUSIVE", told)
    assert "a fake boots" in told, "the server's log is not streamed"


def test_a_failing_teardown_fails_the_test(project: Project) -> None:
    project.write(
        "mine/test_own.py",
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken():\n    yield\n    assert 0, 'not cleaned up'\n"
        "def test_own(server, broken): pass\n",
    )
    result = project.gates("mine", "-k", "test_own")
    assert result.ret == 1
    assert project.outcomes() == {"own::test_own[]": "FAIL"}


def test_an_ordinary_test_in_a_named_path_is_no_gate(project: Project) -> None:
    project.write("mine/test_plain.py", "def test_plain(): pass\n")
    result = project.gates("mine")
    assert result.ret == 0
    assert "all 3 applicable gates passed (11 tests)" in verdict_lines(result)[1]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("def test_plain(): assert 0", ()),
        ("import nothing_of_that_name", ("--continue-on-collection-errors",)),
    ],
    ids=["a test", "a file"],
)
def test_what_fails_besides_the_gates_holds_the_promotion(
    project: Project, text: str, more: tuple[str, ...]
) -> None:
    project.write("mine/test_plain.py", text)
    result = project.gates("mine", *more)
    assert result.ret == 1
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - something besides the gates failed: an ordinary test, or a collection",
    ]
    assert project.verdict()["promotion"] == "HOLD"


# Families.


def test_a_gate_the_family_does_not_have_need_not_pass(project: Project) -> None:
    text = (family.SHIPPED / "qwen3.5.toml").read_text()
    head, _, rest = text.partition("[serve]")
    reason = '[not_applicable]\nmine = "x"\nstreaming = "it only answers whole"\n\n[serve]'
    project.write("families/qwen3.5.toml", head + reason + rest)
    result = project.gates("-m", "boot or words")
    assert result.ret == 0
    assert verdict_lines(result)[0] == "verdict: PROMOTE"
    gates = {gate["gate"]: gate["outcome"] for gate in project.verdict()["families"][0]["gates"]}
    assert gates["streaming"] == "N/A"
    assert "it only answers whole" in result.stdout.str()


def test_every_family_boots_its_own_server_and_is_judged_for_itself(project: Project) -> None:
    project.write("families/house.toml", (family.SHIPPED / "qwen3.5.toml").read_text())
    project.lane()
    result = project.pytest(
        "--model", "house,qwen3.5", "--lane", "fake", "--gates-report", "out", *QUICK
    )
    assert result.ret == 0
    families = project.verdict()["families"]
    assert [one["name"] for one in families] == ["house", "qwen3.5"]
    logs = [one["boot"]["evidence"]["log"] for one in families]
    assert len(set(logs)) == 2
    assert "  - house: 2 gates did not run: streaming, words" in verdict_lines(result)


# Looking without running.


def test_collecting_boots_nothing_and_says_no_verdict(project: Project) -> None:
    result = project.gates("--collect-only", "-q")
    assert result.ret == 0
    assert "gates/test_words.py::test_words_are_the_recorded[qwen3.5-tool-one]" in result.outlines
    assert "verdict" not in result.stdout.str()
    assert not project.report.exists()
    assert not project.key_file.exists()


def test_the_server_is_ended_by_the_last_test(project: Project) -> None:
    result = project.gates("--collect-only", "-q")
    ids = [line for line in result.outlines if "::" in line]
    assert ids[-1] == "gates/test_boot.py::test_leaves_nothing_behind[qwen3.5]"
    assert ids[0] == "gates/test_boot.py::test_boots[qwen3.5]"
    assert len(ids) == len(set(ids)) == 11
