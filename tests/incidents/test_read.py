"""Incidents are read as they were written, and damaged ones are refused with the reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given, strategies as st
from incident_folders_made import BODY, PIECES, SENT, incident, written

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import read as incidents_read, write as incidents_write
from pytest_vllm_gates.incidents.types import NAME, SCHEMA, schema

if TYPE_CHECKING:
    from collections.abc import Callable


def changed(change: Callable[[dict[str, Any]], object], *, signed: bool = True) -> Any:
    """Return what changes an incident's incident.json, and makes its digest fit again."""

    def spoil(folder: Path) -> None:
        document = json.loads((folder / NAME).read_text())
        change(document)
        if signed:
            document["sha256"] = incidents_read.digest(document)
        (folder / NAME).write_text(json.dumps(document))

    return spoil


def test_an_incident_is_read_as_it_was_written(tmp_path: Path) -> None:
    incident_folder = incidents_read.read(written(tmp_path))
    assert incident_folder.incident.family == "qwen3.5"
    assert incident_folder.incident.command == "pytest --repro 2026-11-20-leak"
    (send,) = incident_folder.incident.sends
    sent = incident_folder.sent(send)
    assert (sent.body, sent.pieces, sent.status) == (BODY, PIECES, 200)
    assert sent.response_headers == {"content-type": "text/event-stream"}
    assert incident_folder.text("log-excerpt.txt") == "it broke\n"
    assert incident_folder.text("lane.toml") is None
    assert incidents_read.read(incident_folder.folder / NAME).incident == incident_folder.incident


def test_incidents_of_one_name_get_numbered_folders(tmp_path: Path) -> None:
    folders = [written(tmp_path).name for _ in range(3)]
    assert folders == ["2026-11-20-leak", "2026-11-20-leak-2", "2026-11-20-leak-3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == folders


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains data, not programs"):
        incidents_write.write(tmp_path, "a", incident(), [SENT], {"conftest.py": b""})
    assert list(tmp_path.iterdir()) == []


def test_schema_matches_the_records(tmp_path: Path) -> None:
    recorded = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert recorded == schema(), "write it again: SCHEMA.write_text(json.dumps(schema(), indent=2))"
    document = json.loads((written(tmp_path) / NAME).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(recorded).validate(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "more": 1}, recorded)


@given(
    pieces=st.lists(st.tuples(st.floats(0, 1e6).map(lambda at: round(at, 6)), st.binary())),
    body=st.binary(),
    says=st.text(),
)
def test_any_bytes_are_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[tuple[float, bytes]],
    body: bytes,
    says: str,
) -> None:
    sent = Sent("POST", "/v1/x", {}, body, "a", 200, {}, tuple(pieces))
    folder = tmp_path_factory.mktemp("any")
    incident_folder = incidents_read.read(
        incidents_write.write(folder, "a", incident(says=says), [sent], {})
    )
    assert incident_folder.sent(incident_folder.incident.sends[0]).body == body
    assert incident_folder.sent(incident_folder.incident.sends[0]).pieces == tuple(
        piece for piece in pieces if piece[1]
    )
    assert incident_folder.incident.says == says


def test_half_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    assert incidents_read.read(written(tmp_path, says="a\ud800b")).incident.says == "a?b"


def test_long_response_is_cut_with_a_note(tmp_path: Path) -> None:
    long = Sent("POST", "/v1/x", {}, b"{}", "a", 200, {}, ((0.1, b"x" * 5_000_000),))
    incident_folder = incidents_read.read(
        incidents_write.write(tmp_path, "a", incident(), [long], {})
    )
    lost = 5_000_000 - incidents_write.RESPONSE_BYTES
    assert incident_folder.incident.cut == (
        f"responses/1.jsonl: the last {lost} bytes were not kept",
    )
    assert incident_folder.sent(incident_folder.incident.sends[0]).cut_bytes == lost


def test_files_beyond_the_limit_are_left_out_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents_write, "FILES_BYTES", 2000)
    sends = [Sent("POST", "/v1/x", {}, b"x" * 900, str(n), 200) for n in range(4)]
    incident_folder = incidents_read.read(
        incidents_write.write(tmp_path, "a", incident(), sends, {})
    )
    assert [send.body is None for send in incident_folder.incident.sends] == [
        False,
        False,
        True,
        True,
    ]
    assert incident_folder.incident.cut == tuple(
        f"requests/{n}.json: left out: its 900 bytes exceed the size limit" for n in (3, 4)
    )


def cut_short(folder: Path) -> None:
    file = folder / NAME
    file.write_bytes(file.read_bytes()[:-20])


def larger(folder: Path) -> None:
    with (folder / "requests/1.json").open("r+b") as file:
        file.truncate(100 * 2**20)


def emptied(folder: Path) -> None:
    for path in folder.rglob("*.*"):
        path.unlink()


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty folder": (
        emptied,
        "has no incident.json",
    ),
    "cut short": (cut_short, "is truncated or not JSON"),
    "a file short": (lambda folder: (folder / "requests/1.json").unlink(), "requests/1.json is mi"),
    "a file cut short": (
        lambda folder: (folder / "requests/1.json").write_bytes(BODY[:-1]),
        f"it is truncated: requests/1.json has {len(BODY) - 1} bytes of {len(BODY)}",
    ),
    "another format": (changed(lambda data: data.update(format="har")), "does not have the format"),
    "no object": (lambda folder: (folder / NAME).write_text("[]"), "does not have the format"),
    "deep": (lambda folder: (folder / NAME).write_text("[" * 100_000), "truncated or not JSON"),
    "another version": (changed(lambda data: data.update(version=2)), "has format version 2"),
    "edited": (changed(lambda data: data.update(says="well"), signed=False), "was changed since"),
    "not signed": (changed(lambda data: data.pop("sha256"), signed=False), "was changed since"),
    "an edited request": (
        lambda folder: (folder / "requests/1.json").write_bytes(BODY.replace(b"Hi", b"Ho")),
        "requests/1.json was changed since",
    ),
    "an edited excerpt, longer": (
        lambda folder: (folder / "log-excerpt.txt").write_text("it did not break at all\n"),
        "log-excerpt.txt was changed since",
    ),
    "huge": (larger, "it is larger than"),
    "an unknown key": (changed(lambda data: data.update(run="rm")), "does not fit the format: "),
    "a program": (
        lambda folder: (folder / "sitecustomize.py").write_text("boom"),
        "'sitecustomize.py' is not a file of an incident, which contains data, not programs",
    ),
    "a file nobody lists": (
        lambda folder: (folder / "requests/7.json").write_text("{}"),
        "it contains 'requests/7.json', which incident.json does not list",
    ),
    "a deep folder": (
        lambda folder: (folder / "requests" / "more").mkdir(),
        "'requests/more' is not a regular file",
    ),
    "a link": (
        lambda folder: (folder / "lane.toml").symlink_to("/etc/passwd"),
        "'lane.toml' is a link",
    ),
    "a linked folder": (
        lambda folder: (folder / "expected").symlink_to("/etc"),
        "'expected' is a link",
    ),
    "a pipe": (lambda folder: os.mkfifo(folder / "lane.toml"), "'lane.toml' is not a regular file"),
    "a path outside": (
        changed(lambda data: data["files"].update({"../x": data["files"]["requests/1.json"]})),
        "'../x' leads out of it",
    ),
    "a path outside, later": (
        changed(
            lambda data: data["files"].update({"requests/../../x": {"sha256": "", "bytes": 1}})
        ),
        "leads out of it",
    ),
    "an absolute path": (
        changed(lambda data: data["files"].update({"/etc/passwd": {"sha256": "", "bytes": 1}})),
        "'/etc/passwd' leads out of it",
    ),
    "an unlisted body": (
        changed(lambda data: data["sends"][0].update(body="/etc/passwd")),
        "names '/etc/passwd', which is not listed",
    ),
    "another host": (
        changed(lambda data: data["sends"][0].update(path="http://elsewhere/")),
        "is not a request below a server's root",
    ),
    "two sends of one name": (
        changed(lambda data: data["sends"].append(data["sends"][0])),
        "two sends have the same name",
    ),
    "a cell of nothing": (
        changed(
            lambda data: data.update(
                walk={
                    "max_tokens": 1,
                    "cells": [
                        {
                            "cell": {},
                            "asked": {
                                "turns": "a", "tools": [], "format": "b", "conversation": "c",
                            },
                            "thinks": True, "whole": "1", "streamed": "1", "widened": "9",
                        }
                    ],
                }
            )
        ),
        "a cell names the send '9', which does not exist",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", SPOILT)
def test_damaged_incident_is_refused_with_the_reason(damage: str, tmp_path: Path) -> None:
    spoil, says = SPOILT[damage]
    folder = written(tmp_path)
    spoil(folder)
    with pytest.raises(UserError) as refused:
        incidents_read.read(folder)
    assert says in str(refused.value)
    assert str(folder) in str(refused.value)


def test_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no incident at .*: an incident is a folder"):
        incidents_read.read(tmp_path / "leak.zip")


def test_damaged_response_is_refused(tmp_path: Path) -> None:
    folder = incidents_write.write(tmp_path, "a", incident(), [SENT], {})
    file = folder / "responses/1.jsonl"
    lines = file.read_bytes().splitlines()
    file.write_bytes(b'{"at_s": "never"}'.join([*lines[:1], b""]))
    incident_folder = incidents_read.IncidentFolder(
        folder, incidents_read.read(written(tmp_path)).incident
    )
    with pytest.raises(UserError, match=r"responses/1\.jsonl is not a valid response"):
        incident_folder.sent(incident_folder.incident.sends[0])


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("test_no_marker[qwen3.5]", "2026-11-20-qwen3.5-reasoning-no-marker"),
        ("test_prompt[qwen3.5-tool-one]", "2026-11-20-qwen3.5-reasoning-prompt-tool-one"),
        ("test_a[qwen3.5-../../etc]", "2026-11-20-qwen3.5-reasoning-a-..-..-etc"),
    ],
)
def test_incident_is_named_after_its_day_and_its_test(test: str, name: str) -> None:
    folder_name = incidents_write.name_of("2026-11-20T10:00:00+00:00", "qwen3.5", "reasoning", test)
    assert folder_name == name
    assert Path(folder_name).name == folder_name
