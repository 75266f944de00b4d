"""The command of a check that did not pass runs that check again, and no other."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.options import read
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
    return [test_id.rpartition("/test_")[2].replace(".py::", "::") for test_id in ids]


def test_each_check_that_did_not_pass_has_a_command(project: Project) -> None:
    project.write("mine/test_own.py", OWN)
    project.gates("mine", "--answer-tokens", "77", faults="dies-after:3")
    commands_by_test = commands(project)
    assert len(commands_by_test) > 5
    own_tests = [
        name for name in commands_by_test if "own" in name or "plain" in name or "boot" in name
    ]
    for name in own_tests:
        assert selected(project, commands_by_test[name]) == [name], commands_by_test[name]
    (streaming,) = (commands_by_test[name] for name in own_tests if "streaming" in name)
    assert streaming == (
        "pytest --model qwen3.5 --lane fake --answer-tokens 77 -m streaming "
        "-k 'test_streamed_answer_equals_the_whole[qwen3.5-plain]'"
    )


def test_passed_and_not_applicable_checks_have_no_command(project: Project) -> None:
    project.gates("--require-promotion")
    assert commands(project) == {}


def test_attached_server_is_named_by_its_url(project: Project) -> None:
    url = "http://127.0.0.1:9/v1"
    project.pytest("--model", "qwen3.5", "--base-url", url, "--gates-report", "out", "-m", "boot")
    (boots,) = (command for name, command in commands(project).items() if "test_boots" in name)
    assert boots == (f"pytest --model qwen3.5 --base-url {url} -m boot -k 'test_boots[qwen3.5]'")
    assert selected(project, boots) == ["boot::test_boots[qwen3.5]"]


@pytest.mark.parametrize(
    ("arguments", "gate", "words"),
    [
        (["--checkpoint", "miniature", "--no-overlay"], "boot", "--checkpoint miniature --no-over"),
        (["--soak", "30s", "--ramp"], "load", "--soak 30s --ramp"),
        (["--soak", "30s"], "boot", "--lane fake -m boot"),
        (["--samples", "3"], "tools", "--samples 3"),
        (["--lane", "lanes/fake.toml"], "boot", "lanes/fake.toml -m boot"),
        (["--against", "cpu"], "throughput", "--against cpu"),
    ],
)
def test_command_repeats_options_that_affect_the_gate(
    project: Project, arguments: list[str], gate: str, words: str
) -> None:

    project.lane()
    config = project.pytester.parseconfigure("--model", "qwen3.5", "--lane", "fake", *arguments)
    parsed = read.parse(config)
    assert parsed
    resolved = session_resolve.resolve(parsed)
    resolved.results.append(TestResult("qwen3.5", gate, "test_x[qwen3.5]", Outcome.FAIL))
    (command,) = session_commands.commands(resolved, [gate]).values()
    assert words in command


def test_no_name_of_a_shipped_test_contains_another(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--model", "qwen3.5", "--collect-only", "-q")
    names = [line.rpartition("::")[2].lower() for line in result.outlines if "::" in line]
    assert len(names) > 100
    assert all(session_commands.NAME.fullmatch(name) for name in names)
    assert [name for name in names if sum(name in other_name for other_name in names) > 1] == []
