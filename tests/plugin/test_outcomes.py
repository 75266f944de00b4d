"""The outcomes of a run: terminal output, exit status and verdict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from survivors import none_of
from verdicts import verdict_lines

from pytest_vllm_gates.catalog import family as catalog_family

if TYPE_CHECKING:
    from conftest import Project

QUICK = ("-m", "boot")


def test_a_sound_server_is_promoted(project: Project) -> None:
    result = project.gates("--junitxml", "junit.xml", "--require-promotion")
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: PROMOTE",
        "  - all 3 applicable gates passed (11 tests)",
    ]
    output = result.stdout.str()
    assert "vllm gates: lane fake (asked for): a fake server" in output
    assert "vllm gates: qwen3.5, checkpoint miniature" in output
    assert re.search(r"^qwen3\.5  boot +PASS +5 tests +\d+\.\d s$", output, re.MULTILINE)
    assert re.search(r"^qwen3\.5  words +PASS +3 tests +\d+\.\d s$", output, re.MULTILINE)
    assert f"verdict: {project.report / 'verdict.json'}" in output

    verdict = project.verdict()
    assert (verdict["promotion"], verdict["exit_status"]) == ("PROMOTE", 0)
    assert verdict["lane"]["name"] == "fake"
    (family,) = verdict["families"]
    assert family["boot"]["ok"] is True
    assert set(family["boot"]["times"]) == {"health_s", "first_chat_s", "first_token_s"}
    evidence = {
        test["test"]: test["evidence"] for gate in family["gates"] for test in gate["tests"]
    }
    assert evidence["test_boots[qwen3.5]"]["boot_attempts"] == 1
    assert evidence["test_refuses_a_wrong_key[qwen3.5]"] == {"status": 401}
    assert evidence["test_answers_sensibly[qwen3.5]"]["answer"]["content"].startswith("Paris")

    junit = (project.path / "junit.xml").read_text()
    assert '<property name="outcome" value="PASS"' in junit
    assert '<property name="status" value="401"' in junit
    assert 'classname="gates.test_boot"' in junit

    key = project.key_file.read_text()
    assert len(key) >= 32
    for path in (*project.report.rglob("*"), project.path / "junit.xml"):
        assert path.is_dir() or key not in path.read_text(), f"the API key is in {path}"
    assert key not in output

    log = (project.report / "qwen3.5" / "server.log").read_text()
    assert none_of({int(pid) for pid in re.findall(r"pid=(\d+)", log)})


def test_failed_boot_fails_one_test_and_blocks_the_others(
    project: Project,
) -> None:
    result = project.gates(faults="dies")
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_boots[]") == "FAIL"
    assert set(outcomes.values()) == {"BLOCKED"}
    output = result.stdout.str()
    assert "the server ended before it was ready (exit status 1)" in output
    assert "         ValueError: No available memory for the cache blocks." in output
    assert "KV_NONE (certain): nothing is left for the KV cache" in output.splitlines()
    assert re.search(r"^  next: +\S+", output, re.MULTILINE)
    assert "Traceback" not in output
    assert "1 failed, 10 blocked" in output
    boot = project.verdict()["families"][0]["boot"]
    assert boot["ok"] is False
    explained = boot["explanation"]
    assert (explained["id"], explained["answer"]["class"]) == ("KV_NONE", "kv_cache")
    assert [wrapper["id"] for wrapper in explained["wrappers"]] == ["ENGINE_INIT"]
    ended = "the server ended before it was ready (exit status 1)"
    cause = "KV_NONE (certain): nothing is left for the KV cache"
    reason = f"the server did not boot: {ended}: {cause}; next: {explained['answer']['fixes'][0]}"
    assert verdict_lines(result) == [
        "verdict: REJECT",
        f"  - qwen3.5: boot is FAIL: {ended}: KV_NONE, nothing is left for the KV cache",
        f"  - qwen3.5: 2 gates are BLOCKED: {reason} (streaming, words)",
    ]


def test_server_death_fails_one_test_and_blocks_the_others(
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
    output = result.stdout.str()
    assert "the server died while serving (exit status 9)" in output
    assert "torch.AcceleratorError: CUDA error: an illegal memory access" in output
    gone = "  - qwen3.5: 2 gates are BLOCKED: the server is gone: the server died while serving "
    (line,) = (line for line in verdict_lines(result) if line.startswith(gone))
    assert line.startswith(f"{gone}(exit status 9): IMA (")
    assert "; next: " in line


@pytest.mark.parametrize(
    ("faults", "test", "message"),
    [
        (
            "bangs",
            "boot::test_answers_sensibly[]",
            "prompt 'What is the capital of France?': the answer is only punctuation: '!!!",
        ),
        (
            "any-key",
            "boot::test_refuses_a_wrong_key[]",
            "a wrong key was answered 200, not 401: any client at the port may use it",
        ),
    ],
)
def test_fault_fails_one_test(project: Project, faults: str, test: str, message: str) -> None:
    result = project.gates(*QUICK, faults=faults)
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop(test) == "FAIL"
    assert set(outcomes.values()) == {"PASS"}
    assert message in result.stdout.str()
    assert verdict_lines(result)[0] == "verdict: REJECT"


def test_reasoning_lost_in_the_stream_fails_streaming_alone(project: Project) -> None:
    result = project.gates(faults="loses-reasoning")
    assert result.ret == 1
    gates = {gate["gate"]: gate["outcome"] for gate in project.verdict()["families"][0]["gates"]}
    assert gates == {"boot": "PASS", "streaming": "FAIL", "words": "PASS"}
    assert "reasoning: empty in the streamed answer, 'The user asks" in result.stdout.str()


def test_not_applicable_gate_need_not_pass(project: Project) -> None:
    text = (catalog_family.SHIPPED / "qwen3.5.toml").read_text()
    head, _, tail = text.partition("[serve]")
    reason = '[not_applicable]\nmine = "x"\nstreaming = "it only answers whole"\n\n[serve]'
    project.write("families/qwen3.5.toml", head + reason + tail)
    result = project.gates("-m", "boot or words")
    assert result.ret == 0
    assert verdict_lines(result)[0] == "verdict: PROMOTE"
    gates = {gate["gate"]: gate["outcome"] for gate in project.verdict()["families"][0]["gates"]}
    assert gates["streaming"] == "N/A"
    assert "it only answers whole" in result.stdout.str()


def test_every_family_has_its_own_server_and_gates(project: Project) -> None:
    project.write("families/house.toml", (catalog_family.SHIPPED / "qwen3.5.toml").read_text())
    project.lane()
    result = project.pytest(
        "--model", "house,qwen3.5", "--lane", "fake", "--gates-report", "out", *QUICK
    )
    assert result.ret == 0
    families = project.verdict()["families"]
    assert [family["name"] for family in families] == ["house", "qwen3.5"]
    logs = [family["boot"]["evidence"]["log"] for family in families]
    assert len(set(logs)) == 2
    assert "  - house: 2 gates did not run: streaming, words" in verdict_lines(result)


def test_collect_only_boots_nothing_and_gives_no_verdict(project: Project) -> None:
    result = project.gates("--collect-only", "-q")
    assert result.ret == 0
    assert "gates/test_words.py::test_words_are_the_recorded[qwen3.5-tool-one]" in result.outlines
    assert "verdict" not in result.stdout.str()
    assert not project.report.exists()
    assert not project.key_file.exists()


def test_server_ends_with_the_last_test(project: Project) -> None:
    result = project.gates("--collect-only", "-q")
    ids = [line for line in result.outlines if "::" in line]
    assert ids[-1] == "gates/test_boot.py::test_leaves_nothing_behind[qwen3.5]"
    assert ids[0] == "gates/test_boot.py::test_boots[qwen3.5]"
    assert len(ids) == len(set(ids)) == 11


def test_answer_of_an_unexpected_form_is_named_as_the_reason(project: Project) -> None:
    """A check that fails on an answer reports that: `TypeError` alone is not a reason."""
    project.write("mine/test_own.py", "def test_own(server, family): raise TypeError('int')\n")
    result = project.gates("-k", "test_own", "mine")
    assert "the server's answer could not be judged: TypeError: int" in result.stdout.str()
