"""A request is captured, or imported from a log, and sent again by --repro."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_vllm_gates
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.incidents.read import IncidentFolder, read
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Fakes, Project

BODY = '{"model":"qwen3.5",  "messages": [{"role": "user", "content": "Capital?"}], "stream": true}'
GATES = Path(pytest_vllm_gates.__file__).parent / "gates"
KEY = "plant-capture-key-1"


def incident_in(folder: Path) -> IncidentFolder:
    (path,) = (folder / "incidents").iterdir()
    return read(path)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "body.json").write_text(BODY)
    return tmp_path


def capture(url: str, *arguments: str) -> int:
    return main(["capture", "--base-url", url, "--request", "body.json", *arguments])


def test_request_is_sent_unchanged_and_kept_with_its_answer(
    workdir: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    server = fakes("echoes", key=KEY, names=("qwen3.5",))
    assert capture(server.base_url, "--expect", "content has Paris", "--expect", "whole") == 0
    output = capsys.readouterr().out
    incident_folder = incident_in(workdir)
    (send,) = incident_folder.incident.sends
    sent = incident_folder.sent(send)
    assert sent.body == BODY.encode()
    assert sent.status == 200
    assert [at for at, _ in sent.pieces] == sorted(at for at, _ in sent.pieces)
    assert sent.answer.endswith(b"data: [DONE]\n\n")
    incident = incident_folder.incident
    assert (incident.gate, incident.family, incident.model) == ("captured", "qwen3.5", "qwen3.5")
    assert incident.says == "expected: content has Paris; whole"
    assert incident.versions == {"vllm": "0.32.0"}
    assert incident.lane.base_url == server.base_url
    assert f"pytest --repro {incident_folder.folder.relative_to(workdir)}" in output
    for path in (workdir / "incidents").rglob("*"):
        assert path.is_dir() or KEY not in path.read_text()
    assert KEY not in output


def test_unmet_expectation_is_printed_and_reproduced(
    project: Project,
    fakes: Fakes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(project.path)
    for name in ("captured", "incidents"):
        shutil.copy(GATES / f"test_{name}.py", verdict_gates.GATES)
    project.write("body.json", BODY)
    server = fakes("bangs", names=("qwen3.5",))
    assert capture(server.base_url) == 0  # the first answer is sound
    assert capture(server.base_url) == 1
    says = f"the answer is only punctuation: '{'!' * 20}'"
    assert says in capsys.readouterr().out
    incident_folder = next(
        folder
        for folder in map(read, (project.path / "incidents").iterdir())
        if folder.incident.findings
    )
    assert incident_folder.incident.says == says
    for faults, answer in (("bangs", "REPRODUCED"), ("", "NOT REPRODUCED")):
        result = project.pytest(
            "--repro", str(incident_folder.folder), "--base-url", fakes(faults).base_url
        )
        assert f"incident: {answer}" in result.outlines
        assert result.ret == (answer == "REPRODUCED")
    ordinary = project.gates("-m", "captured")
    assert "captured  N/A" in ordinary.stdout.str()


def test_incident_with_a_redacted_key_is_reproduced(
    project: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("captured", "incidents"):
        shutil.copy(GATES / f"test_{name}.py", verdict_gates.GATES)
    project.write("body.json", BODY.replace('"stream": true', '"stream": false'))
    server = fakes("echoes", key=KEY, names=("qwen3.5",))
    assert capture(server.base_url, "--expect", "content lacks You sent") == 1
    incident_folder = incident_in(project.path)
    assert "Bearer [redacted]" in incident_folder.incident.says
    monkeypatch.setenv("OPENAI_API_KEY", "plant-another-key-2")
    other_server = fakes("echoes", key="plant-another-key-2")
    result = project.pytest(
        "--repro", str(incident_folder.folder), "--base-url", other_server.base_url
    )
    assert "incident: REPRODUCED" in result.outlines
    assert "plant-" not in result.stdout.str()


def test_captured_request_that_is_not_inference_is_not_sent_again(
    project: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    for name in ("captured", "incidents"):
        shutil.copy(GATES / f"test_{name}.py", verdict_gates.GATES)
    project.write("body.json", BODY)
    server = fakes("", names=("qwen3.5",))
    assert capture(server.base_url, "--path", "/v1/load_lora_adapter") in (0, 1)
    folder = incident_in(project.path).folder
    sent_before = server.chats
    result = project.pytest("--repro", str(folder), "--base-url", server.base_url)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "it would send 'POST' '/v1/load_lora_adapter' with your key" in result.stderr.str()
    assert server.chats == sent_before
    kept = project.path / "golden" / "incidents"
    kept.mkdir(parents=True)
    folder.rename(kept / folder.name)
    kept_run = project.gates("-m", "incidents")
    assert "it would send 'POST' '/v1/load_lora_adapter' with your key" in kept_run.stdout.str()
    assert kept_run.ret == pytest.ExitCode.TESTS_FAILED


def test_import_without_an_answer_prints_how_to_record_one(
    workdir: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "ticket.txt").write_text(f"curl http://h/v1/chat/completions -d '{BODY}'")
    imported = ["incident", "from", "ticket.txt", "--expect", "content has Paris", "--model", "glm"]
    assert main(imported) == 0
    output = capsys.readouterr().out
    folder = incident_in(workdir).folder.relative_to(workdir)
    assert "it has no recorded answer, so a replay can only check the expectations" in output
    typed = f"vllm-gates capture --base-url URL --request {folder}"
    assert f"to record one: {typed}" in output

    words = typed.replace("URL", fakes(names=("qwen3.5",)).base_url).split()[1:]
    assert main([*words, "--out", "kept"]) == 0
    assert " pieces, " in capsys.readouterr().out
    (path,) = (workdir / "kept").iterdir()
    kept = read(path)
    assert kept.incident.family == "glm"
    assert kept.text("expected/expectations.txt") == "content has Paris\n"
    (send,) = kept.incident.sends
    assert (kept.body(send), send.status) == (BODY.encode(), 200)


def test_capture_keeps_the_new_answer_and_reports_it(
    workdir: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    pasted = json.dumps({"choices": [{"message": {"content": "old"}, "finish_reason": "stop"}]})
    ticket = f"curl http://h/v1/chat/completions -d @- <<'EOF'\n{BODY}\nEOF\n{pasted}\n"
    (workdir / "ticket.txt").write_text(ticket)
    url = fakes(names=("qwen3.5",)).base_url
    assert main(["capture", "--base-url", url, "--request", "ticket.txt"]) == 0
    output = capsys.readouterr().out
    assert "was recorded as the answer" not in output
    assert "the answer in ticket.txt is not kept: the incident has the new answer" in output
    incident_folder = incident_in(workdir)
    (send,) = incident_folder.incident.sends
    assert b"old" not in incident_folder.sent(send).answer


def archive() -> str:
    request = {
        "method": "POST", "url": "http://h/v1/chat/completions", "headers": [],
        "postData": {"text": BODY},
    }  # fmt: skip
    return json.dumps({"log": {"entries": [{"request": request}, {"request": request}]}})


@pytest.mark.parametrize(
    ("name", "text", "more", "count"),
    [
        ("ticket.txt", f"curl http://h/v1/chat/completions -d '{BODY}'", (), 1),
        ("page.har", archive(), (), 2),
        ("page.har", archive(), ("--number", "2"), 1),
        # A body that quotes a command or a log is a body all the same.
        ("body.json", BODY.replace("Capital?", "Received request a: prompt: "), (), 1),
    ],
)
def test_capture_accepts_every_format_of_an_import(
    workdir: Path, fakes: Fakes, *, name: str, text: str, more: tuple[str, ...], count: int
) -> None:
    (workdir / name).write_text(text)
    url = fakes(names=("qwen3.5",)).base_url
    assert main(["capture", "--base-url", url, "--request", name, *more]) == 0
    sends = incident_in(workdir).incident.sends
    assert [(send.path, send.status) for send in sends] == [("/v1/chat/completions", 200)] * count


def test_one_request_of_an_incident_is_captured_by_its_body(
    workdir: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "page.har").write_text(archive())
    assert main(["incident", "from", "page.har", "--expect", "calls get_time"]) == 0
    folder = incident_in(workdir).folder
    url = fakes("chat-500", names=("qwen3.5",)).base_url
    request = str(folder / "requests/2.json")
    assert main(["capture", "--base-url", url, "--request", request, "--out", "kept"]) == 1
    assert "status 500, 1 piece, " in capsys.readouterr().out
    (path,) = (workdir / "kept").iterdir()
    (send,) = read(path).incident.sends
    assert send.name == "2"
    assert read(path).incident.says == "it calls nothing, not get_time (status 500)"


def test_request_of_others_that_is_not_inference_is_not_captured(
    workdir: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "ticket.txt").write_text("curl http://h/v1/load_lora_adapter -d '{}'")
    server = fakes(names=("qwen3.5",))
    capture_it = ["capture", "--base-url", server.base_url, "--request", "ticket.txt"]
    assert main([*capture_it, "--model", "qwen3.5"]) == 2
    message = capsys.readouterr().err
    assert "it would send 'POST' '/v1/load_lora_adapter', which is not" in message
    assert server.chats == 0


def test_replaced_secrets_are_reported(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = BODY.replace("Capital?", f"My key is {KEY}, or {KEY}.")
    (workdir / "ticket.txt").write_text(f"curl http://h/v1/chat/completions -d '{body}'")
    assert main(["incident", "from", "ticket.txt"]) == 0
    says = "2 secrets were replaced in the prompt: the request is not the original"
    assert says in capsys.readouterr().out


def test_missing_answer_becomes_an_incident(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capture("http://127.0.0.1:9/v1", "--timeout", "2") == 1
    assert "no answer: ConnectError" in capsys.readouterr().err
    assert incident_in(workdir).incident.sends[0].status is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("capture", "--base-url", "nowhere", "--request", "body.json"), " URL"),
        (("capture", "--base-url", "http://h/v1", "--request", "none"), "cannot be read: No such"),
        (("capture", "--base-url", "http://h/v1", "--request", "text"), "is not JSON"),
        (("incident", "from", "text"), "the kind of this text is not clear: it is not a known"),
        (("incident", "from", "text", "--kind", "har"), "not a HAR file"),
        (("incident", "from", "binary"), "is not text in UTF-8"),
        (("incident", "from", "none"), "cannot be read: No such file"),
        (("incident", "from", "curl", "--number", "2"), "--number 2: curl has 1 requests"),
        (
            ("incident", "from", "curl", "--expect", "joy"),
            "unknown expectation: 'joy'; the",
        ),
        (("incident", "from", "curl", "--model", "gwen"), "unknown family 'gwen'"),
        (("incident", "from", "other"), "no family matches the model 'what': name the family"),
        (("incident", "from", "empty", "--kind", "vllm-log"), "it contains no request to a model"),
    ],
)
def test_invalid_arguments_and_files_are_refused(
    workdir: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    (workdir / "text").write_text("nothing of the kind")
    (workdir / "empty").write_text("")
    (workdir / "binary").write_bytes(b"\xff\xfe\x00")
    (workdir / "curl").write_text(f"curl http://h/v1/chat/completions -d '{BODY}'")
    (workdir / "other").write_text('curl http://h/v1/completions -d \'{"model": "what"}\'')
    assert main(list(arguments)) == 2
    assert message in capsys.readouterr().err
    assert not (workdir / "incidents").exists()


def test_curl_command_becomes_an_incident_without_its_key(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({**json.loads(BODY), "model": "Qwen/Qwen3.5-27B", "user": "letmein-curl-2"})
    command = (
        "curl https://me:letmein-url-3@h/v1/chat/completions "
        f"-H 'Authorization: Bearer letmein-curl-2' -d '{body}'"
    )
    stdin = io.TextIOWrapper(io.BytesIO(command.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["incident", "from", "-", "--expect", "content has Paris"]) == 0
    incident_folder = incident_in(workdir)
    assert incident_folder.incident.family == "qwen3.5"
    assert incident_folder.incident.lane.title == "seen in curl"
    assert incident_folder.text("expected/expectations.txt") == "content has Paris\n"
    for path in (workdir / "incidents").rglob("*"):
        assert path.is_dir() or "letmein" not in path.read_text()
    assert "letmein" not in capsys.readouterr().out


def test_query_of_the_url_is_left_out(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://h/v1/chat/completions?api_key=letmein-query-1&x=2"
    (workdir / "ticket.txt").write_text(f"curl '{url}' -d '{BODY}'")
    assert main(["incident", "from", "ticket.txt"]) == 0
    says = "the URL's query was left out: it may contain a key, and secrets are not sent again"
    output = capsys.readouterr().out
    assert says in output
    (send,) = incident_in(workdir).incident.sends
    assert send.path == "/v1/chat/completions"
    for path in (workdir / "incidents").rglob("*"):
        assert path.is_dir() or "letmein" not in path.read_text()


def test_command_of_an_incident_is_right_wherever_it_was_moved(workdir: Path, fakes: Fakes) -> None:
    url = fakes(names=("qwen3.5",)).base_url
    assert capture(url) == 0
    folder = incident_in(workdir).folder
    assert read(folder).incident.command == f"pytest --repro {folder.name} --base-url {url}"
    assert capture(url, "--out", str(folder.parent)) == 0  # another of that name
    again = folder.with_name(f"{folder.name}-2")
    assert read(again).incident.command == f"pytest --repro {again.name} --base-url {url}"
    kept = workdir / "golden" / "incidents"
    kept.mkdir(parents=True)
    shutil.move(folder, kept)
    words = shlex.split(read(kept / folder.name).incident.command)
    assert read(kept / words[2]).folder == kept / folder.name


def test_command_of_an_import_names_no_server(workdir: Path) -> None:
    (workdir / "curl").write_text(f"curl http://h/v1/chat/completions -d '{BODY}'")
    assert main(["incident", "from", "curl"]) == 0
    folder = incident_in(workdir).folder
    assert read(folder).incident.command == f"pytest --repro {folder.name}"


def test_wrong_answer_below_the_command_is_kept(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "No."}, "finish_reason": "stop"}]}
    (workdir / "ticket.txt").write_text(
        "Hello, this calls no tool:\n"
        f"$ curl http://h/v1/chat/completions \\\n  -d '{BODY}'\n"
        f"data: {json.dumps(delta)}\n\ndata: [DONE]\n"
    )
    assert main(["incident", "from", "ticket.txt", "--expect", "calls get_time"]) == 0
    output = capsys.readouterr().out
    assert "  1 line before the command was skipped\n" in output
    assert "  the text below the command was recorded as the answer" in output
    assert "  it calls nothing, not get_time\n" in output
    assert "it has no recorded answer" not in output
    incident = incident_in(workdir).incident
    assert (incident.sends[0].status, incident.says) == (200, "it calls nothing, not get_time")


def test_prompts_can_be_left_out(workdir: Path) -> None:
    (workdir / "curl").write_text(f"curl http://h/v1/chat/completions -d '{BODY}'")
    assert main(["incident", "from", "curl", "--redact-prompts", "drop"]) == 0
    incident_folder = incident_in(workdir)
    (send,) = incident_folder.incident.sends
    assert json.loads(incident_folder.body(send))["messages"] == [
        {"role": "user", "content": "[dropped]"}
    ]
    assert "cannot show it again" in incident_folder.incident.cut[0]


def test_gates_with_nothing_to_judge_are_not_expected(project: Project) -> None:
    for name in ("captured", "incidents"):
        shutil.copy(GATES / f"test_{name}.py", verdict_gates.GATES)

    def missed() -> list[str]:
        project.gates("-m", "boot")
        return [reason for reason in project.verdict()["reasons"] if reason.endswith("did not run")]

    assert missed() == ["qwen3.5: streaming did not run", "qwen3.5: words did not run"]
    project.write("golden/incidents/broken/incident.json", "{")
    assert "qwen3.5: incidents did not run" in missed(), "it is there, be it readable or not"
