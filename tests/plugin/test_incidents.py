"""A failed test leaves an incident, which is replayed alone or as a test of every run."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_vllm_gates.gates
from pytest_vllm_gates.incidents import read as incident_folders
from pytest_vllm_gates.session import write_incident as incidents
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Project, Result

STREAMING = ("-m", "streaming")
LOST = "test_streamed_answer_equals_the_whole[qwen3.5-plain]"
GATE = Path(pytest_vllm_gates.gates.__file__).with_name("test_incidents.py")


@pytest.fixture(autouse=True)
def _gate(project: Project) -> None:  # noqa: ARG001 - its gates are those that are shipped
    shutil.copy(GATE, verdict_gates.GATES)


def incidents_of(project: Project) -> list[incident_folders.IncidentFolder]:
    """Return the incidents that the last run names, each read."""
    return [
        incident_folders.read(project.report / incident["path"])
        for incident in project.verdict()["incidents"]
    ]


def lost_reasoning(project: Project) -> Path:
    """Have a server lose its reasoning, and return a copy of the incident of the plain question."""
    assert project.gates(*STREAMING, faults="loses-reasoning").ret == 1
    (incident_folder,) = [
        folder for folder in incidents_of(project) if folder.incident.test == LOST
    ]
    shutil.copytree(incident_folder.folder, project.path / "copied")
    shutil.rmtree(project.report)
    return project.path / "copied"


def replayed(project: Project, *arguments: str, faults: str = "") -> tuple[Result, dict[str, Any]]:
    """Replay the copied incident on a server with these faults."""
    project.lane(faults)
    result = project.pytest("--repro", "copied", "--gates-report", "out", *arguments)
    return result, project.verdict()["repro"] if (project.report / "verdict.json").exists() else {}


def test_failure_leaves_an_incident_with_requests_and_answers(
    project: Project,
) -> None:
    result = project.gates(*STREAMING, "--junitxml", "x.xml", faults="loses-reasoning")
    listed = [entry for entry in project.verdict()["incidents"] if entry["test"] == LOST]
    assert [(entry["family"], entry["gate"]) for entry in listed] == [("qwen3.5", "streaming")]
    folder = project.report / listed[0]["path"]
    assert folder.parent == project.report / "incidents"
    assert folder.name.endswith("-qwen3.5-streaming-streamed-answer-equals-the-whole-plain")
    assert f"  incident: streaming: pytest --repro out/incidents/{folder.name}" in result.outlines
    assert str(folder) in (project.path / "x.xml").read_text()

    incident_folder = incident_folders.read(folder)
    incident = incident_folder.incident
    assert incident.says.startswith("streamed and whole answer differ:")
    assert (incident.family, incident.lane.name) == ("qwen3.5", "fake")
    assert incident.command == f"pytest --repro out/incidents/{folder.name}"
    assert incident.conversation and incident.conversation["name"] == "plain"
    unstreamed, streamed = (incident_folder.sent(send) for send in incident.sends)
    assert (unstreamed.method, unstreamed.path, unstreamed.status) == (
        "POST",
        "/v1/chat/completions",
        200,
    )
    assert json.loads(unstreamed.body)["model"] == incident.model
    assert json.loads(streamed.body)["stream"] is True
    assert streamed.answer.endswith(b"data: [DONE]\n\n")
    times = [at for at, _ in streamed.pieces]
    assert len(times) > 1 and times == sorted(times)
    assert "POST /v1/chat/completions" in (incident_folder.text("log-excerpt.txt") or "")
    assert b"a fake boots" in gzip.decompress((folder / "log.txt.gz").read_bytes())
    assert incident_folder.text("lane.toml") == (project.path / "lanes/fake.toml").read_text()


def test_incidents_have_no_key(project: Project) -> None:
    project.gates(faults="bangs")
    key = project.key_file.read_bytes()
    files = [path for path in project.report.rglob("*") if path.is_file()]
    assert any("incidents" in path.parts for path in files)
    for path in files:
        data = path.read_bytes()
        assert key not in (gzip.decompress(data) if path.suffix == ".gz" else data), path
    authorised = [
        send.headers["authorization"]
        for each in incidents_of(project)
        for send in each.incident.sends
    ]
    assert authorised and set(authorised) == {"[redacted]"}


def test_passing_test_leaves_no_incident(project: Project) -> None:
    assert project.gates().ret == 0
    assert project.verdict()["incidents"] == []
    assert not (project.report / "incidents").exists()
    assert not (project.path / "incidents").exists()


def test_without_a_report_incidents_lie_in_the_project(project: Project) -> None:
    project.lane("bangs")
    project.pytest("--model", "qwen3.5", "--lane", "fake", "-m", "boot")
    (folder,) = (project.path / "incidents").iterdir()
    assert incident_folders.read(folder).incident.test == "test_answers_sensibly[qwen3.5]"


def test_no_incidents_option_writes_none(project: Project) -> None:
    assert project.gates("--no-incidents", "-m", "boot", faults="bangs").ret == 1
    assert project.verdict()["incidents"] == []
    assert not (project.report / "incidents").exists()


def test_gate_leaves_at_most_a_few_incidents(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "A_GATE", 2)
    project.gates(*STREAMING, faults="loses-reasoning")
    assert len(incidents_of(project)) == 2


def test_unwritable_incident_does_not_end_the_run(project: Project) -> None:
    project.write("out/incidents", "a file")
    result = project.gates("-m", "boot", faults="bangs")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["  no incident was written of test_answers_sensibly*"])
    assert project.verdict()["incidents"] == []


def test_dead_server_leaves_its_log_and_its_cause(project: Project) -> None:
    project.gates("-m", "boot", faults="dies-after:1")
    (folder,) = incidents_of(project)
    assert folder.incident.says.startswith("the server died while serving (exit status 9)")
    assert folder.incident.signature
    assert "illegal memory access" in (folder.text("log-excerpt.txt") or "")
    assert folder.incident.sends[-1].error.startswith(("RemoteProtocolError", "ReadError"))
    assert folder.incident.sends[-1].status is None


def test_failed_boot_leaves_its_log_and_its_cause(project: Project) -> None:
    project.gates(faults="dies")
    (folder,) = incidents_of(project)
    assert folder.incident.test == "test_boots[qwen3.5]"
    assert "No available memory for the cache blocks" in (folder.text("log-excerpt.txt") or "")
    assert folder.incident.sends == ()


def test_present_fault_is_reproduced(project: Project) -> None:
    lost_reasoning(project)
    result, replay = replayed(project, faults="loses-reasoning")
    assert result.ret == 1
    assert (replay["answer"], replay["times"], replay["reproduced"]) == ("REPRODUCED", 1, 1)
    assert "incident: REPRODUCED" in result.stdout.str()
    assert [response["same"] for response in replay["attempts"][0]["responses"]] == [True, True]
    assert project.verdict()["promotion"] != "PROMOTE"
    assert project.verdict()["incidents"] == []


def test_mended_fault_is_not_reproduced(project: Project) -> None:
    lost_reasoning(project)
    result, replay = replayed(project)
    assert result.ret == 0
    assert replay["answer"] == "NOT REPRODUCED"
    assert "incident: NOT REPRODUCED" in result.stdout.str()
    same, different = replay["attempts"][0]["responses"]
    assert same["same"] and not different["same"]
    assert "+choices[0].delta.reasoning: The user asks for a capital." in different["diff"]
    assert project.verdict()["promotion"] == "HOLD"
    assert "this run sent an incident again (--repro)" in project.verdict()["reasons"][0]


def test_other_fault_is_different(project: Project) -> None:
    lost_reasoning(project)
    result, replay = replayed(project, faults="dies-after:1")
    assert result.ret == 1
    assert replay["answer"] == "DIFFERENT"
    assert replay["attempts"][0]["says"].startswith("the server died while serving")
    assert "incident: DIFFERENT" in result.stdout.str()


def test_replay_without_a_server_is_different(project: Project) -> None:
    lost_reasoning(project)
    result, replay = replayed(project, faults="dies")
    assert result.ret == 1
    assert replay["answer"] == "DIFFERENT"
    assert replay["attempts"][0]["outcome"] == "BLOCKED"


def test_replay_of_a_failed_boot_boots_again(project: Project) -> None:
    project.gates(faults="dies")
    shutil.copytree(incidents_of(project)[0].folder, project.path / "copied")
    result, replay = replayed(project, faults="dies")
    assert (result.ret, replay["answer"]) == (1, "REPRODUCED")
    result, replay = replayed(project)
    assert (result.ret, replay["answer"]) == (0, "NOT REPRODUCED")


def test_several_times_give_a_rate_with_its_interval(project: Project) -> None:
    lost_reasoning(project)
    result, replay = replayed(project, "--times", "4", faults="loses-reasoning")
    assert result.ret == 1
    assert (replay["times"], replay["reproduced"], replay["rate"]) == (4, 4, 1.0)
    assert replay["interval"] == [0.5101, 1.0]
    assert "REPRODUCED in 4 of 4 tries: 100%, 51.0% to 100.0% at 95 % confidence" in str(
        result.stdout
    )
    assert len({str(attempt["seconds"]) for attempt in replay["attempts"]}) >= 1
    assert len(replay["attempts"]) == 4


def test_incident_is_replayed_on_an_attached_server(
    project: Project, fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_reasoning(project)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    server = fakes("loses-reasoning")
    result, replay = replayed(project, "--base-url", server.base_url)
    assert (result.ret, replay["answer"]) == (1, "REPRODUCED")
    server = fakes()
    result, replay = replayed(project, "--base-url", server.base_url)
    assert (result.ret, replay["answer"]) == (0, "NOT REPRODUCED")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--repro", "nowhere"), "no incident at "),
        (("--repro", "copied", "--model", "glm"), "--model would change it: give only one of them"),
        (
            ("--repro", "copied", "--update-golden"),
            "--update-golden would change it: give only one",
        ),
        (("--repro", "copied", "--times", "0"), "--times"),
        (("--times", "3"), "--times needs --repro"),
    ],
)
def test_invalid_options_are_refused(
    arguments: tuple[str, ...], says: str, project: Project
) -> None:
    result = project.pytest(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in result.stderr.str()


def test_changed_incident_is_refused(project: Project) -> None:
    folder = lost_reasoning(project)
    (folder / "requests/1.json").write_text("{}")
    result, replay = replayed(project)
    assert (result.ret, replay) == (pytest.ExitCode.USAGE_ERROR, {})
    assert "requests/1.json has 2 bytes of" in result.stderr.str()


def test_incident_with_a_damaged_response_is_refused(project: Project) -> None:
    folder = lost_reasoning(project)
    document = json.loads((folder / "incident.json").read_text())
    (folder / "responses/1.jsonl").write_bytes(b"{}\n[]\n")
    sha256 = hashlib.sha256(b"{}\n[]\n").hexdigest()
    document["files"]["responses/1.jsonl"] = {"sha256": sha256, "bytes": 6}
    document["sha256"] = incident_folders.digest(document)
    (folder / "incident.json").write_text(json.dumps(document))
    result = project.pytest("--repro", "copied")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "responses/1.jsonl is not a valid response" in result.stderr.str()


def test_error_in_writing_an_incident_does_not_end_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(incidents, "IncidentContents", fail)
    result = project.gates("-m", "boot", faults="bangs")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["  no incident was written *: ZeroDivisionError: ours"])


def test_incidents_lane_that_could_run_code_is_not_booted(project: Project) -> None:
    lost_reasoning(project)
    (project.path / "lanes/fake.toml").unlink()
    result = project.pytest("--repro", "copied")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = result.stderr.str()
    assert (
        "the project has no lane 'fake', and the lane in the incident's folder is not booted"
        in errors
    )
    assert "which could run any program" in errors and "--lane NAME" in errors


def test_incident_of_a_removed_test_is_refused(project: Project) -> None:
    lost_reasoning(project)
    (verdict_gates.GATES / "test_streaming.py").unlink()
    result = project.pytest("--repro", "copied")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"no test {LOST} of a gate 'streaming' is here" in result.stderr.str()


def test_kept_incident_is_a_test_of_every_run(project: Project) -> None:
    shutil.move(lost_reasoning(project), project.path / "golden/incidents/leak")
    name = "incidents::test_streamed_answer_equals_the_whole[plain-leak]"

    assert project.gates(faults="loses-reasoning").ret == 1
    assert project.outcomes()[name] == "FAIL"
    assert {incident["gate"] for incident in project.verdict()["incidents"]} == {"streaming"}

    assert project.gates("--require-promotion").ret == 0
    assert project.outcomes()[name] == "PASS"
    assert project.outcomes()["incidents::test_every_kept_incident_can_be_sent_again[]"] == "PASS"


def test_gate_without_kept_incidents_does_not_apply(project: Project) -> None:
    assert project.gates("--require-promotion").ret == 0
    name = "incidents::test_every_kept_incident_can_be_sent_again[]"
    assert project.outcomes()[name] == "N/A"
    assert project.verdict()["promotion"] == "PROMOTE"


def test_unreadable_kept_incident_fails(project: Project) -> None:
    folder = project.path / "golden/incidents/leak"
    shutil.move(lost_reasoning(project), folder)
    (folder / "requests/1.json").unlink()
    assert project.gates("-m", "incidents").ret == 1
    (reason,) = [reason for reason in project.verdict()["reasons"] if "FAIL" in reason]
    assert "is truncated: requests/1.json is missing" in reason


def test_kept_incident_of_a_removed_test_fails(project: Project) -> None:
    shutil.move(lost_reasoning(project), project.path / "golden/incidents/leak")
    (verdict_gates.GATES / "test_streaming.py").unlink()
    assert project.gates().ret == 1
    (reason,) = [reason for reason in project.verdict()["reasons"] if "FAIL" in reason]
    assert f"test {LOST} of gate 'streaming' no longer exists" in reason
