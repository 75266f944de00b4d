"""The replay of a captured request reports what it shows, and what it cannot show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_vllm_gates.gates
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Fakes, Project, Result

GATES = Path(pytest_vllm_gates.gates.__file__).parent
TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
BODY = {"model": "qwen3.5", "messages": [{"role": "user", "content": "Capital?"}]}
SAMPLED = "this request is sampled: one try shows little; --times 20 shows more"


@pytest.fixture(autouse=True)
def _gates(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("OPENAI_API_KEY", "plant-captured-key-1")
    for name in ("captured", "incidents"):
        shutil.copy(GATES / f"test_{name}.py", verdict_gates.GATES)


def seen(project: Project, *expected: str, **more: Any) -> Path:
    """Make an incident of a curl line, which has no answer; return its folder."""
    command = f"curl http://h/v1/chat/completions -d '{json.dumps({**BODY, **more})}'"
    project.write("ticket.txt", command)
    expectations = [word for each in expected for word in ("--expect", each)]
    assert main(["incident", "from", "ticket.txt", *expectations]) == 0
    (folder,) = (project.path / "incidents").iterdir()
    return folder


def replayed(project: Project, folder: Path, url: str, *more: str) -> tuple[Result, dict[str, Any]]:
    result = project.pytest(
        "--repro", str(folder), "--base-url", url, "--gates-report", "out", *more
    )
    return result, project.verdict()["repro"]


def test_one_try_of_a_sampled_request_shows_little(project: Project, fakes: Fakes) -> None:
    folder, url = seen(project, "content has Paris"), fakes().base_url
    result, replay = replayed(project, folder, url)
    assert SAMPLED in replay["notes"]
    assert f"  {SAMPLED}" in result.outlines
    result, replay = replayed(project, folder, url, "--times", "2")
    assert replay["notes"] == []
    assert "is sampled" not in result.stdout.str()


def test_unmet_expectation_without_an_answer_is_not_met(project: Project, fakes: Fakes) -> None:
    folder = seen(project, "calls get_time", temperature=0)
    result, replay = replayed(project, folder, fakes().base_url)
    assert result.ret == 1
    assert (replay["answer"], replay["reproduced"]) == ("NOT MET", 1)
    output = result.stdout.str()
    assert "incident: NOT MET" in result.outlines
    assert "  now:  the expectation is not met here: calls nothing, not get_time" in result.outlines
    assert "  1: no answer was recorded; now: first byte " in output
    assert "answers compared" not in output and "never" not in output
    result, replay = replayed(project, folder, fakes().base_url, "--times", "3")
    output = result.stdout.str()
    assert "incident: NOT MET in 3 of 3 tries: 100%" in output
    failures, _, summary = output.partition("= FAILURES =")[2].partition("short test summary")
    assert failures.count("it calls nothing, not get_time") == 1, output
    assert "\n3 times\n" in failures
    assert "3 failed" in summary


def test_met_expectation_without_an_answer_is_not_reproduced(
    project: Project, fakes: Fakes
) -> None:
    folder = seen(project, "content has Paris", temperature=0)
    result, replay = replayed(project, folder, fakes().base_url)
    assert (result.ret, replay["answer"]) == (0, "NOT REPRODUCED")


@pytest.mark.parametrize("faults", ["", "any-list"])
def test_refused_key_is_not_judged(
    project: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch, faults: str
) -> None:
    folder = seen(project, "calls get_time", temperature=0)
    monkeypatch.setenv("OPENAI_API_KEY", "plant-captured-key-2")
    result, replay = replayed(project, folder, fakes(faults, key="plant-captured-key-1").base_url)
    assert (result.ret, replay["answer"]) == (1, "NOT JUDGED")
    assert "incident: NOT JUDGED" in result.outlines
    assert "refused the " in next(line for line in result.outlines if "now: " in line)


def test_words_of_a_replay_count_one(
    project: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    url = fakes(names=("qwen3.5",)).base_url
    project.write("body.json", json.dumps(BODY))
    expected = ["--expect", "calls get_time"]
    assert main(["capture", "--base-url", url, "--request", "body.json", *expected]) == 1
    (folder,) = (project.path / "incidents").iterdir()
    result, _replay = replayed(project, folder, url)
    assert "incident: REPRODUCED" in result.outlines
    assert "  1 answer compared, 0 differ" in result.outlines


def test_kept_incident_fails_with_its_finding(project: Project) -> None:
    folder = seen(project, "calls get_time", temperature=0)
    shutil.move(folder, project.path / "golden/incidents/mine")
    project.gates("-m", "incidents")
    (reason,) = [reason for reason in project.verdict()["reasons"] if "FAIL" in reason]
    assert "an answer is not as expected: calls nothing, not get_time (in 1 of 1 cases)" in reason
