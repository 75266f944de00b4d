"""The smallest incident that still reproduces is found, and written beside the original."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import SENT, incident

from pytest_vllm_gates.catalog.matrix import ConversationRule
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import expectation, write as incidents_write
from pytest_vllm_gates.incidents.read import IncidentFolder, read
from pytest_vllm_gates.incidents.shrink import RemovablePart, Shrinker
from pytest_vllm_gates.incidents.types import CellSends, RecordedWalk
from pytest_vllm_gates.server.kept import registry as kept_registry

if TYPE_CHECKING:
    from conftest import Fakes, Project

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Do not stumble."},
    {"role": "assistant", "content": "I will not."},
    {"role": "user", "content": "Good."},
]
BODY = {
    "model": "qwen3.5", "messages": MESSAGES, "tools": [TOOL], "temperature": 0, "seed": 1,
    "max_tokens": 9,
}  # fmt: skip
ASKED = ConversationRule(turns="one", tools=("one",), format="text", conversation="tool-one")
CELL = {"thinking": "on", "tools": "one", "format": "text"}


def request(name: str, **more: Any) -> Sent:
    body = json.dumps({**BODY, **more}).encode()
    return Sent("POST", "/v1/chat/completions", {}, body, name, 200, {}, ((0.1, b"{}"),))


def incident_folder(folder: Path, sends: list[Sent], **more: Any) -> IncidentFolder:
    return read(incidents_write.write(folder, "2026-11-20-it", incident(**more), sends, {}))


def kinds(whittler: Shrinker) -> dict[str, list[str]]:
    return {kind: list(map(str, parts)) for kind, parts in whittler.parts()}


def body_of(incident: IncidentFolder, name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(incident.body(incident.send(name)))
    return body


def test_captured_requests_can_lose_turns_tools_and_options(tmp_path: Path) -> None:
    original = incident_folder(tmp_path, [request("1"), request("2")], gate="captured")
    whittler = Shrinker(original)
    assert kinds(whittler) == {
        "request": ["request 1", "request 2"],
        "turn": ["turn 1", "turn 2", "turn 3", "turn 4"] * 2,
        "tool": ["tool 1", "tool 1"],
        "option": ["option temperature", "option seed"] * 2,
    }
    gone = [
        RemovablePart("request", "2"),
        RemovablePart("turn", "1", 0),
        RemovablePart("turn", "1", 2),
        RemovablePart("tool", "1", 0),
        RemovablePart("option", "1", "seed"),
    ]
    smaller = read(whittler.write(tmp_path, "smaller", gone))
    assert [send.name for send in smaller.incident.sends] == ["1"]
    assert body_of(smaller, "1") == {
        "model": "qwen3.5", "messages": [MESSAGES[1], MESSAGES[3]], "temperature": 0,
        "max_tokens": 9,
    }  # fmt: skip
    assert read(original.folder).incident == original.incident
    untouched = read(whittler.write(tmp_path, "untouched", [RemovablePart("request", "2")]))
    assert untouched.sent(untouched.send("1")).pieces == ((0.1, b"{}"),)


def test_variants_of_a_cell_are_shrunk_together(tmp_path: Path) -> None:
    sends = [request(name) for name in ("1-whole", "1-streamed", "2-whole", "3-whole")]
    cells = (
        CellSends(cell=CELL, asked=ASKED, thinks=True, whole="1-whole", streamed="1-streamed"),
        CellSends(cell=CELL, asked=ASKED, thinks=True, whole="2-whole"),
        CellSends(
            cell=CELL, asked=ASKED, thinks=True, whole="3-whole", unstopped="2-whole", stop="x"
        ),
    )
    original = incident_folder(tmp_path, sends, walk=RecordedWalk(max_tokens=9, cells=cells))
    whittler = Shrinker(original)
    assert kinds(whittler)["request"] == ["request 1-whole", "request 3-whole"]
    without_turn = read(whittler.write(tmp_path, "a", [RemovablePart("turn", "1-whole", 0)]))
    assert body_of(without_turn, "1-streamed")["messages"] == MESSAGES[1:]
    assert body_of(without_turn, "3-whole")["messages"] == MESSAGES
    without_cell = read(whittler.write(tmp_path, "b", [RemovablePart("request", "1-whole")]))
    assert [send.name for send in without_cell.incident.sends] == ["2-whole", "3-whole"]
    assert without_cell.incident.walk
    assert [cell.whole for cell in without_cell.incident.walk.cells] == ["2-whole", "3-whole"]


def test_conversation_can_lose_turns_and_tools(tmp_path: Path) -> None:
    conversation = {
        "name": "mine", "title": "t", "messages": MESSAGES, "tools": [TOOL], "thinking": "unset",
        "effort": "high", "repeat_last": 1,
    }  # fmt: skip
    original = incident_folder(tmp_path, [SENT], conversation=conversation)
    whittler = Shrinker(original)
    assert kinds(whittler) == {
        "turn": ["turn 1", "turn 2", "turn 3", "turn 4"],
        "tool": ["tool 1"],
        "option": ["option effort", "option repeat_last"],
    }
    gone = [
        RemovablePart("turn", "", 1),
        RemovablePart("tool", "", 0),
        RemovablePart("option", "", "effort"),
    ]
    remaining = read(whittler.write(tmp_path, "a", gone)).incident.conversation
    assert remaining
    assert remaining["messages"] == [MESSAGES[0], *MESSAGES[2:]]
    assert remaining["tools"] == []
    assert "effort" not in remaining


def test_incident_of_a_test_with_own_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="makes its own requests"):
        Shrinker(incident_folder(tmp_path, [SENT]))


@pytest.mark.parametrize(
    ("sends", "more", "why"),
    [
        ([], {"gate": "boot", "test": "test_boots[x]"}, "no request: test_boots[x] sent none"),
        ([], {"gate": "captured"}, "it has no request"),
        ([SENT], {"gate": "isolation"}, "makes its own requests"),
        ([SENT], {"cut": ("the cell a was not kept",)}, "too large to be stored"),
        ([SENT], {"gate": "captured", "cut": (incidents_write.OTHERWISE,)}, "--redact-prompts"),
        ([SENT], {"gate": "captured"}, "one request with one message"),
        (
            [SENT],
            {
                "conversation": {"name": "a", "title": "t", "messages": MESSAGES},
                "says": "a is not what was recorded in /x/a.txt\n- b\n+ c",
            },
            "only the whole conversation has one",
        ),
    ],
)  # fmt: skip
def test_incident_that_cannot_be_shrunk_is_refused_before_a_boot(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    sends: list[Sent],
    more: dict[str, Any],
    why: str,
) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a replay was started"))
    original = incident_folder(tmp_path, sends, **more)
    assert main(["shrink", str(original.folder)]) == 2
    message = capsys.readouterr().err
    assert f"{original.folder} cannot be shrunk: " in message
    assert why in message


def test_conversation_without_messages_is_not_tried(tmp_path: Path) -> None:
    conversation = {"name": "a", "title": "t", "messages": MESSAGES, "tools": [TOOL]}
    whittler = Shrinker(incident_folder(tmp_path, [SENT], conversation=conversation))
    turns = [RemovablePart("turn", "", at) for at in range(len(MESSAGES))]
    assert whittler.possible(turns[1:])
    assert not whittler.possible(turns)


def test_smaller_incident_keeps_the_rest_of_the_command(tmp_path: Path) -> None:
    conversation = {"name": "a", "title": "t", "messages": MESSAGES}
    command = "pytest --repro out/{name} --base-url http://h/v1 'my gates/test_a.py'"
    original = incident_folder(tmp_path, [SENT], conversation=conversation, command=command)
    (tmp_path / "pyproject.toml").write_text("")
    folder = tmp_path / "kept here"
    folder.mkdir()
    written = Shrinker(original).write(folder, "a b", [RemovablePart("turn", "", 0)])
    assert read(written).incident.command == (
        "pytest --repro 'kept here/''a b' --base-url http://h/v1 'my gates/test_a.py'"
    )


def test_smaller_captured_incident_is_typed_beside_it_too(tmp_path: Path) -> None:
    command = "pytest --repro {name} --base-url http://h/v1"
    original = incident_folder(tmp_path, [request("1")], gate="captured", command=command)
    folder = Shrinker(original).write(tmp_path, "smaller", [RemovablePart("turn", "1", 0)])
    assert read(folder).incident.command == "pytest --repro smaller --base-url http://h/v1"


OURS = """
def test_ours(conversation, chat, family):
    answer = chat.ask(conversation.body(family))
    assert not answer.content, "there is an answer"
"""
LONG = """\
title = "a long one"
[[messages]]
role = "system"
content = "Be kind."
[[messages]]
role = "user"
content = "Hm?"
"""


def test_incident_of_a_conversation_is_shrunk_on_the_projects_lane(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("conversations/long.toml", LONG)
    project.write("mine/test_ours.py", OURS)
    project.gates("mine", "-k", "test_ours and long")
    (incident,) = project.verdict()["incidents"]
    folder = project.report / incident["path"]
    arguments = ["shrink", str(folder), "--lane", "fake", "--keep-server=90s", "mine"]
    try:
        assert main(arguments) == 0, capsys.readouterr()
    finally:
        for entry in kept_registry.entries(kept_registry.open_root()):
            kept_registry.stop(entry, force=True)
    output = capsys.readouterr().out
    assert "removed: turn 1" in output
    smaller = read(folder.parent / f"{folder.name}-shrunk")
    assert smaller.incident.conversation
    assert [each["content"] for each in smaller.incident.conversation["messages"]] == ["Hm?"]
    assert f"send it again: pytest --repro {smaller.folder} --lane fake mine" in output


def test_reason_without_words_of_the_test_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passed = {"why": "its test passes", "says": ""}
    failed = {"why": "it differs", "says": "it said no"}
    document = {"answer": "NOT REPRODUCED", "attempts": [passed, failed, failed]}

    def replay(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (report,) = [word for word in command if word.startswith("--gates-report=")]
        path = Path(report.partition("=")[2]) / "verdict.json"
        path.write_text(json.dumps({"repro": document}))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", replay)
    original = incident_folder(tmp_path, [request("1")], gate="captured")
    assert main(["shrink", str(original.folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["  its test passes", "  it differs: it said no (2 times)"]


def test_captured_request_keeps_a_message_and_the_tool_that_is_expected(tmp_path: Path) -> None:
    tools = [TOOL, {"type": "function", "function": {"name": "get_time"}}]
    files = {expectation.FILE: b"calls get_time\n"}
    path = incidents_write.write(
        tmp_path, "it", incident(gate="captured"), [request("1", tools=tools)], files
    )
    whittler = Shrinker(read(path))
    assert kinds(whittler)["tool"] == ["tool 1"], "the second is the one that is to be called"
    turns = [RemovablePart("turn", "1", at) for at in range(len(MESSAGES))]
    assert whittler.possible(turns[1:])
    assert not whittler.possible(turns)


def replay_that(*attempts: dict[str, Any]) -> dict[str, Any]:
    return {"answer": "REPRODUCED", "attempts": [{"why": "w", "says": "s", **a} for a in attempts]}


@pytest.mark.parametrize(
    ("worse", "says"),
    [
        ({"statuses": {"1": 400}}, "the status is 400, not 200"),
        ({"statuses": {"1": None}}, "the status is missing, not 200"),
        ({"unmet": ["1: calls x", "1: whole"]}, "another expectation is not met: 1: whole"),
    ],
)
def test_part_that_goes_wrong_in_another_way_does_not_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    worse: dict[str, Any],
    says: str,
) -> None:
    whole = {"statuses": {"1": 200}, "unmet": ["1: calls x"]}

    def replay(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        values = dict(word[2:].split("=", 1) for word in command if word.startswith("--gates"))
        folder = read(Path(values["gates-repro"]))
        complete = body_of(folder, "1").keys() == BODY.keys()
        document = {"repro": replay_that(whole if complete else {**whole, **worse})}
        (Path(values["gates-report"]) / "verdict.json").write_text(json.dumps(document))
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr("subprocess.run", replay)
    messages = {"messages": MESSAGES[:1], "tools": []}
    original = incident_folder(tmp_path, [request("1", **messages)], gate="captured")
    assert main(["shrink", str(original.folder)]) == 0
    output = capsys.readouterr().out
    assert f"try 2: REPRODUCED, but {says}" in output
    assert "nothing can be removed" in output


def test_request_that_is_refused_without_messages_keeps_one(
    tmp_path: Path,
    fakes: Fakes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    body = {"model": "qwen3.5", "messages": MESSAGES[:2], "temperature": 0}
    (tmp_path / "body.json").write_text(json.dumps(body))
    url = fakes("strict", names=("qwen3.5",)).base_url
    capture = ["capture", "--base-url", url, "--request", "body.json", "--expect", "calls get_time"]
    assert main(capture) == 1
    (path,) = (tmp_path / "incidents").iterdir()
    assert main(["shrink", str(path), "--base-url", url]) == 0, capsys.readouterr()
    smaller = read(path.parent / f"{path.name}-shrunk")
    assert body_of(smaller, "1") == {"model": "qwen3.5", "messages": [MESSAGES[1]]}


@pytest.mark.slow
def test_only_the_cause_of_the_fault_remains(
    tmp_path: Path,
    fakes: Fakes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "body.json").write_text(json.dumps(BODY))
    url = fakes("trips", names=("qwen3.5",)).base_url
    assert main(["capture", "--base-url", url, "--request", "body.json"]) == 1
    (path,) = (tmp_path / "incidents").iterdir()
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    capsys.readouterr()

    assert main(["shrink", str(path), "--base-url", url]) == 0
    output = capsys.readouterr().out
    print(output)
    assert "removed: turn 1, turn 3, turn 4, tool 1, option temperature, option seed" in output
    smaller = read(path.parent / f"{path.name}-shrunk")
    assert body_of(smaller, "1") == {
        "model": "qwen3.5", "messages": [MESSAGES[1]], "max_tokens": 9,
    }  # fmt: skip
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before

    assert main(["shrink", str(path), "--base-url", fakes().base_url]) == 1
    assert "NOT REPRODUCED here" in capsys.readouterr().out
    assert len(list((tmp_path / "incidents").iterdir())) == 2


def test_failed_replay_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = "test_is_answered_as_expected[x]"
    original = incident_folder(tmp_path, [request("1")], gate="captured", test=test)
    assert main(["shrink", str(original.folder), "--lane", "nowhere"]) == 2
    message = capsys.readouterr().err
    assert "the replay has no result (exit status 4)" in message
    assert "unknown lane 'nowhere'" in message
