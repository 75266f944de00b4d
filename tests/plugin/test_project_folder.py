"""Lanes, families and goldens are found from the invocation folder, whatever paths options name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_vllm_gates.gates
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.options import read
from pytest_vllm_gates.options.defaults import SAMPLES
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Project

COLLECT = ("--model", "qwen3.5", "--lane", "fake", "--collect-only", "-q")
LANE_HEADER = "vllm gates: lane fake (asked for): a fake server"


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the project."""
    return tmp_path_factory.mktemp("elsewhere")


def test_report_folder_elsewhere_that_exists_is_not_a_root(
    project: Project, elsewhere: Path
) -> None:
    arguments = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", str(elsewhere / "out"))
    for _ in range(2):
        result = project.pytest(*arguments, "-m", "boot")
        assert result.ret == 0, result.stderr.str()
        assert (elsewhere / "out/verdict.json").is_file()
        assert (project.path / ".vllm-gates/history.sqlite").is_file()
    assert not (elsewhere / ".vllm-gates").exists()
    assert not (elsewhere.parent / ".vllm-gates").exists()


def test_every_option_with_a_path_elsewhere_leaves_the_project(
    project: Project, elsewhere: Path
) -> None:
    weights = shutil.copytree(miniatures.path("qwen3.5"), elsewhere / "weights")
    trace = elsewhere / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,4,2\n")
    for option, path in (
        ("--checkpoint", weights),
        ("--load-trace", trace),
        ("--gates-history", trace.with_name("history.sqlite")),
    ):
        result = project.pytest(*COLLECT, option, str(path))
        assert result.ret == 0, (option, result.stderr.str())


def test_incident_elsewhere_is_replayed_on_the_projects_lane(
    project: Project, elsewhere: Path
) -> None:
    gate = Path(pytest_vllm_gates.gates.__file__).with_name("test_incidents.py")
    shutil.copy(gate, verdict_gates.GATES)
    assert project.gates("-m", "streaming", faults="loses-reasoning").ret == 1
    incident = project.report / project.verdict()["incidents"][0]["path"]
    moved = shutil.copytree(incident, elsewhere / "moved")
    result = project.pytest("--repro", str(moved), "--lane", "fake", "--collect-only")
    assert result.ret == 0, result.stderr.str()
    assert LANE_HEADER in result.outlines


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "tox.ini",
            "[pytest]\ngates_model = qwen3.5\ngates_lane = fake\ngates_no_incidents = true\n"
            "gates_load_trace = trace.csv\n",
        ),
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\ngates_model = ["qwen3.5"]\ngates_lane = "fake"\n'
            'gates_no_incidents = true\ngates_load_trace = "trace.csv"\n',
        ),
    ],
)
def test_settings_of_the_project_are_read_whatever_pytest_reads(
    project: Project, elsewhere: Path, name: str, text: str
) -> None:
    (project.path / "tox.ini").unlink()
    project.write(name, text)
    config = project.pytester.parseconfig("--gates-report", str(elsewhere))
    assert config.inipath is None, "what this test is about"
    found = read.parse(config)
    assert found
    assert (found.models, found.lane, found.incidents) == (("qwen3.5",), "fake", False)
    assert found.trace == project.path / "trace.csv"
    assert found.report_dir == elsewhere


def test_settings_of_another_configuration_do_not_count(project: Project, elsewhere: Path) -> None:
    (elsewhere / "pytest.ini").write_text("[pytest]\ngates_lane = theirs\ngates_samples = 3\n")
    config = project.pytester.parseconfig(
        "--model", "qwen3.5", "--gates-report", str(elsewhere), "-o", "gates_answer_tokens=5"
    )
    found = read.parse(config)
    assert found
    assert (found.lane, found.samples, found.answer_tokens) == (None, SAMPLES, 5)


def test_project_is_found_from_a_folder_below(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "tox.ini").unlink()
    below = project.path / "tests" / "unit"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project.pytest(*COLLECT).ret == 0


@pytest.mark.parametrize("option", ["--rootdir", "-c"])
def test_explicit_root_comes_first(project: Project, elsewhere: Path, option: str) -> None:
    (elsewhere / "pytest.ini").write_text("[pytest]\n")
    root = {"--rootdir": elsewhere, "-c": elsewhere / "pytest.ini"}[option]
    result = project.pytest(*COLLECT, option, str(root))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unknown lane 'fake'" in result.stderr.str()


def test_gates_named_by_path_bring_their_project(
    project: Project, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("mine/test_own.py", "def test_own(server, family): pass\n")
    monkeypatch.chdir(elsewhere)
    assert project.pytest(*COLLECT, str(project.path / "mine")).ret == 0


@pytest.mark.parametrize(
    "command",
    [
        ("preflight", "--model", "qwen3.5", "--lane", "fake"),
        ("lane", "diff", "fake", "fake"),
        ("lane", "make", "fake"),
        ("lane", "list"),
        ("inventory", "--lane", "fake"),
        ("signatures",),
    ],
    ids=" ".join,
)
def test_commands_find_the_same_project_from_below(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    project.write("signatures/ours.toml", SIGNATURES)
    below = project.path / "tests" / "unit"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    main(command)
    output = capsys.readouterr()
    assert "unknown lane" not in output.err
    if command[-1] in ("list", "signatures"):
        assert {"list": "a fake server", "signatures": "OURS1"}[command[-1]] in output.out


SIGNATURES = """\
title = "ours"

[[signatures]]
id = "OURS1"
title = "a failure of ours"
phase = "load"
patterns = ["nothing like it"]
references = ["ours#1"]

[signatures.text]
cause = "somebody"
fixes = ["ask them"]
"""
