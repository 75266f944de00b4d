"""Each call of what writes a report or an incident fails in turn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from incident_folders_made import written
from report.documents import empty
from write_faults import after_each_fault, tree

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.incidents import read as incident_folders
from pytest_vllm_gates.load.generator import measure, result
from pytest_vllm_gates.load.types import DrivenLoad
from pytest_vllm_gates.report import publish
from pytest_vllm_gates.server import watchdog

if TYPE_CHECKING:
    from pathlib import Path


def made(place: Path) -> None:
    place.mkdir()


def test_incident_is_written_whole(tmp_path: Path) -> None:
    for place, call, error in after_each_fault(
        lambda place: written(place / "incidents"), tmp_path, made
    ):
        if error is None:
            incident_folders.read(place / "incidents" / "2026-11-20-leak")
            assert len(tree(place / "incidents")) == 7, call
            continue
        assert tree(place) == {}, call
        assert isinstance(error, WriteError), call
        assert str(error).startswith(f"{place}/incidents/2026-11-20-leak was not written: ")


def test_report_is_written_whole_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_vllm_gates.report.html.page.compose", lambda *_, **__: "page")
    messages: dict[Path, list[str]] = {}

    def write(place: Path) -> None:
        environ = {"GITHUB_STEP_SUMMARY": str(place / "summary.md")}
        messages[place] = publish.publish(place / "out", empty(), environ)

    for place, call, error in after_each_fault(write, tmp_path, made):
        assert error is None, call
        told = "\n".join(messages[place])
        for name in ("out/report.html", "out/verdict.json", "summary.md"):
            path = place / name
            # A file that is whole may be named all the same: its last call failed.
            assert path.exists() or ("not written" in told and path.name in told), call
        assert call in ("", "fchmod") or "not written" in told
        assert not list(place.rglob(".*"))
        if (place / "out" / "verdict.json").exists():
            json.loads((place / "out" / "verdict.json").read_text())


def test_report_whose_page_cannot_be_made_has_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise RecursionError("too deep")

    monkeypatch.setattr("pytest_vllm_gates.report.html.page.compose", fail)
    report, verdict = publish.publish(tmp_path / "out", empty(), {})
    assert report.endswith("could not be created: RecursionError: too deep; please report this")
    assert verdict == f"verdict: {tmp_path / 'out' / 'verdict.json'}"


def test_hang_is_told_without_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    assert watchdog.stacks([1], tmp_path / "out" / "stacks.txt") is None


def test_lost_load_is_no_fault_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as ended:
        result.write(str(tmp_path / "gone" / "result"), DrivenLoad(0.0, 0.0, ()))
    output = f"a warning\n{ended.value.code}\n"
    monkeypatch.setattr(measure, "_alone", lambda _: output)
    with pytest.raises(UserError, match=r"responses were lost: .*/gone/result was not written"):
        measure.measure(Endpoint("http://127.0.0.1:9/v1", "m"), [])
