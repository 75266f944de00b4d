"""The command of a check that did not pass runs that check again, and no other."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates import options
from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.session import commands as session_commands, resolve as session_resolve

if TYPE_CHECKING:
    from conftest import Project

OWN = """
import pytest
from pytest_vllm_gates.outcomes import Inconclusive

@pytest.mark.parametrize("what", ["plain", "a (b) and not c", "x"])
def test_own(server, what):
    raise Inconclusive("who knows")

def test_own_well(server):
    pass
"""


def commands(project: Project) -> dict[str, str]:
    """Return the last run's commands by `gate::test`."""
    return {
        f"{gate['gate']}::{test['test']}": test["reproduce"]
        for family in project.verdict()["families"]
        for gate in family["gates"]
        for test in gate["tests"]
        if "reproduce" in test
    }


def selected(project: Project, command: str) -> list[str]:
    """Return what a command collects, as `gate::test`."""
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    result = project.pytest(*arguments, "--collect-only", "-q")
    assert result.ret == 0, result.stdout.str()
    ids = [line for line in result.outlines if "::" in line]
    return [text.rpartition("/test_")[2].replace(".py::", "::") for text in ids]


def test_each_check_that_did_not_pass_has_its_own(project: Project) -> None:
    project.write("mine/test_own.py", OWN)
    project.gates("mine", "--answer-tokens", "77", faults="dies-after:3")
    found = commands(project)
    assert len(found) > 5
    some = [name for name in found if "own" in name or "plain" in name or "boot" in name]
    for name in some:
        assert selected(project, found[name]) == [name], found[name]
    (streaming,) = (found[name] for name in some if "streaming" in name)
    assert streaming == (
        "pytest --model qwen3.5 --lane fake --answer-tokens 77 -m streaming "
        "-k 'test_streamed_answer_equals_the_whole[qwen3.5-plain]'"
    )


def test_what_passed_and_what_does_not_apply_has_none(project: Project) -> None:
    project.gates("--require-promotion")
    assert commands(project) == {}


def test_a_server_that_runs_is_named_by_its_url(project: Project) -> None:
    url = "http://127.0.0.1:9/v1"
    project.pytest("--model", "qwen3.5", "--base-url", url, "--gates-report", "out", "-m", "boot")
    (boots,) = (text for name, text in commands(project).items() if "test_boots" in name)
    assert boots == (f"pytest --model qwen3.5 --base-url {url} -m boot -k 'test_boots[qwen3.5]'")
    assert selected(project, boots) == ["boot::test_boots[qwen3.5]"]


@pytest.mark.parametrize(
    ("more", "gate", "said"),
    [
        (["--checkpoint", "miniature", "--no-overlay"], "boot", "--checkpoint miniature --no-over"),
        (["--soak", "30s", "--ramp"], "load", "--soak 30s --ramp"),
        (["--soak", "30s"], "boot", "--lane fake -m boot"),
        (["--samples", "3"], "tools", "--samples 3"),
        (["--against", "cpu"], "throughput", "--against cpu"),
    ],
)
def test_what_changes_how_a_gate_judges_is_asked_for_again(
    project: Project, more: list[str], gate: str, said: str
) -> None:

    project.lane()
    config = project.pytester.parseconfigure("--model", "qwen3.5", "--lane", "fake", *more)
    given = options.parse(config)
    assert given
    resolved = session_resolve.resolve(given)
    resolved.results.append(TestResult("qwen3.5", gate, "test_x[qwen3.5]", Outcome.FAIL))
    (command,) = session_commands.commands(resolved, [gate]).values()
    assert said in command


def test_no_shipped_test_is_meant_by_the_name_of_another(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--model", "qwen3.5", "--collect-only", "-q")
    names = [line.rpartition("::")[2].lower() for line in result.outlines if "::" in line]
    assert len(names) > 100
    assert all(session_commands.NAME.fullmatch(name) for name in names)
    assert [name for name in names if sum(name in other for other in names) > 1] == []
