"""The least of an incident that still happens is found, and written beside the incident."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import SENT, incident

from pytest_vllm_gates.catalog.matrix import ConversationRule
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import write as incidents_write
from pytest_vllm_gates.incidents.read import IncidentFolder, read
from pytest_vllm_gates.incidents.shrink import RemovablePart, Shrinker
from pytest_vllm_gates.incidents.types import CellSends, RecordedWalk

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Fakes

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


def body_of(found: IncidentFolder, name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(found.body(found.send(name)))
    return body


def test_of_captured_requests_turns_tools_and_options_may_go(tmp_path: Path) -> None:
    whole = incident_folder(tmp_path, [request("1"), request("2")], gate="captured")
    whittler = Shrinker(whole)
    assert kinds(whittler) == {
        "request": ["request 1", "request 2"],
        "turn": ["turn 1", "turn 2", "turn 3", "turn 4"] * 2,
        "tool": ["tool 1", "tool 1"],
        "option": ["option temperature", "option seed"] * 2,
    }
    gone = [
        RemovablePart("request", "2"), RemovablePart("turn", "1", 0), RemovablePart("turn", "1", 2), RemovablePart("tool", "1", 0),
        RemovablePart("option", "1", "seed"),
    ]  # fmt: skip
    smaller = read(whittler.write(tmp_path, "smaller", gone))
    assert [send.name for send in smaller.incident.sends] == ["1"]
    assert body_of(smaller, "1") == {
        "model": "qwen3.5", "messages": [MESSAGES[1], MESSAGES[3]], "temperature": 0,
        "max_tokens": 9,
    }  # fmt: skip
    assert read(whole.folder).incident == whole.incident
    untouched = read(whittler.write(tmp_path, "untouched", [RemovablePart("request", "2")]))
    assert untouched.sent(untouched.send("1")).pieces == ((0.1, b"{}"),)


def test_the_ways_a_cell_was_asked_stay_one_question(tmp_path: Path) -> None:
    sends = [request(name) for name in ("1-whole", "1-streamed", "2-whole", "3-whole")]
    cells = (
        CellSends(cell=CELL, asked=ASKED, thinks=True, whole="1-whole", streamed="1-streamed"),
        CellSends(cell=CELL, asked=ASKED, thinks=True, whole="2-whole"),
        CellSends(
            cell=CELL, asked=ASKED, thinks=True, whole="3-whole", unstopped="2-whole", stop="x"
        ),
    )
    whole = incident_folder(tmp_path, sends, walk=RecordedWalk(max_tokens=9, cells=cells))
    whittler = Shrinker(whole)
    assert kinds(whittler)["request"] == ["request 1-whole", "request 3-whole"]
    smaller = read(whittler.write(tmp_path, "a", [RemovablePart("turn", "1-whole", 0)]))
    assert body_of(smaller, "1-streamed")["messages"] == MESSAGES[1:]
    assert body_of(smaller, "3-whole")["messages"] == MESSAGES
    other = read(whittler.write(tmp_path, "b", [RemovablePart("request", "1-whole")]))
    assert [send.name for send in other.incident.sends] == ["2-whole", "3-whole"]
    assert other.incident.walk
    assert [cell.whole for cell in other.incident.walk.cells] == ["2-whole", "3-whole"]


def test_of_a_conversation_turns_and_tools_may_go(tmp_path: Path) -> None:
    told = {
        "name": "mine", "title": "t", "messages": MESSAGES, "tools": [TOOL], "thinking": "unset",
        "effort": "high", "repeat_last": 1,
    }  # fmt: skip
    whole = incident_folder(tmp_path, [SENT], conversation=told)
    whittler = Shrinker(whole)
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
    found = read(whittler.write(tmp_path, "a", gone)).incident.conversation
    assert found
    assert found["messages"] == [MESSAGES[0], *MESSAGES[2:]]
    assert found["tools"] == []
    assert "effort" not in found


def test_a_test_that_asks_by_itself_leaves_nothing_to_leave_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="asks by itself"):
        Shrinker(incident_folder(tmp_path, [SENT]))


def test_what_makes_a_server_stumble_is_all_that_is_left(
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
    told = capsys.readouterr().out
    print(told)
    assert "left out: turn 1, turn 3, turn 4, tool 1, option temperature, option seed" in told
    smaller = read(path.parent / f"{path.name}-shrunk")
    assert body_of(smaller, "1") == {
        "model": "qwen3.5", "messages": [MESSAGES[1]], "max_tokens": 9,
    }  # fmt: skip
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before

    assert main(["shrink", str(path), "--base-url", fakes().base_url]) == 1
    assert "NOT REPRODUCED here" in capsys.readouterr().out
    assert len(list((tmp_path / "incidents").iterdir())) == 2


def test_a_replay_that_comes_to_nothing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = "test_is_answered_as_expected[x]"
    whole = incident_folder(tmp_path, [request("1")], gate="captured", test=test)
    assert main(["shrink", str(whole.folder), "--lane", "nowhere"]) == 2
    told = capsys.readouterr().err
    assert "the replay came to nothing (exit status 4)" in told
    assert "unknown lane 'nowhere'" in told
