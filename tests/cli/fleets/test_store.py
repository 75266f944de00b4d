"""`vllm-gates store` as it is typed, and a fleet whose shards push to one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fleet.made_fleets import verdict
from gates_store import team_stores
from servers.putting import PuttingServer

from pytest_vllm_gates.bisection import gates_run
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.fleet import shards

if TYPE_CHECKING:
    Captured = pytest.CaptureFixture[str]


@pytest.fixture(name="project", autouse=True)
def project_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_push_list_and_pull(project: Path, capsys: Captured) -> None:
    (project / "golden").mkdir()
    (project / "golden" / "a.json").write_text("{}")
    assert main(["store", "list", "team", "golden"]) == 0
    assert capsys.readouterr() == ("", "team/golden/main: 0 generations\n")
    for text in ("one", "two", "two"):
        (project / "golden" / "a.json").write_text(text)
        assert main(["store", "push", "team", "golden", "golden"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "team/golden/main: generation 1",
        "team/golden/main: generation 2",
        "team/golden/main: unchanged since generation 2",
    ]
    assert main(["store", "list", "team", "golden"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["store", "pull", "team", "golden", "back"]) == 0
    assert (project / "back" / "a.json").read_text() == "two"
    assert main(["store", "pull", "team", "golden", "old", "--number", "1"]) == 0
    assert (project / "old" / "a.json").read_text() == "one"
    assert "generation 1 of 20" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pull", "team", "golden", "back"], "nothing was pushed there yet"),
        (["pull", "team", "golden", "golden"], "golden already exists"),
        (["pull", "team", "golden", "back", "--number", "9"], "has no generation 9"),
        (["push", "team", "golden", "nowhere"], "nowhere: no such file or folder"),
        (
            ["push", "team", "golden", "golden", "--name", "a b"],
            "'a b' cannot be a name",
        ),
    ],
)
def test_impossible_pushes_and_pulls_are_reported(
    words: list[str], says: str, project: Path, capsys: Captured
) -> None:
    (project / "golden").mkdir()
    (project / "golden" / "a.json").write_text("{}")
    if "golden already" in says:
        main(["store", "push", "team", "golden", "golden"])
    assert main(["store", *words]) != 0
    assert says in capsys.readouterr().err
    assert not (project / "back").exists()


def test_shards_push_and_the_merge_pulls(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(gates_run, "run", _write_verdict)
    with team_stores.s3(monkeypatch) as store:
        matrix = ["matrix", "--families", "qwen3.5,gemma", "--gates", "boot,stop"]
        assert main([*matrix, "--as", "loop", "--store", store]) == 0
        script = (project / "fleet.sh").read_text()
        assert f"--reports shards --store {store}" in script
        assert f"vllm-gates merge {store} --plan fleet.json" in script
        assert main(["shard", "fleet.json", "qwen3-5-cpu", "--store", store]) == 0
        assert "generation 1" in capsys.readouterr().out
        assert main(["merge", store]) == 6
        assert f"vllm-gates shard fleet.json gemma-cpu --store {store}" in capsys.readouterr().out
        assert main(["shard", "fleet.json", "gemma-cpu", "--store", store]) == 0
        assert main(["merge", store, "--report", "out"]) == 0
    capsys.readouterr()
    page = (project / "out" / "fleet.md").read_text()
    target = page.partition("| gemma | [PASS](")[2].partition(")")[0]
    assert (project / "out" / target).read_text() == "<html></html>"


def test_a_shard_that_cannot_be_pushed_does_not_end_the_next(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(gates_run, "run", _write_verdict)
    main(["matrix", "--families", "qwen3.5,gemma", "--gates", "boot"])
    (project / "team").mkdir()
    (project / "team" / "verdicts").write_text("no folder")
    words = ["shard", "fleet.json", "0", "1", "--store", "team", "--reports", "kept here"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.count("not pushed: ") == 2
    (project / "team" / "verdicts").unlink()
    for line in told.splitlines():
        if command := line.partition("push it: vllm-gates ")[2]:
            assert main(shlex.split(command)) == 0
    assert main(["merge", "team"]) == 0


def _write_verdict(_: list[str], *, folder: Path, name: str, **__: Any) -> tuple[int, Any]:
    document = verdict(shards.read(Path("fleet.json")).shard(name))
    (folder / "verdict.json").write_text(json.dumps(document))
    (folder / "report.html").write_text("<html></html>")
    return 0, document


def test_a_login_does_not_get_into_a_page(project: Path, capsys: Captured) -> None:
    main(["matrix", "--families", "qwen3.5", "--gates", "boot"])
    with PuttingServer() as server:
        store = server.url.replace("http://", "http://me:s3cr3t-word@")
        assert main(["merge", store, "--report", "out"]) == 6
    for path in (project / "out").iterdir():
        assert path.is_dir() or "s3cr3t-word" not in path.read_text()
    assert f"--store {server.url}" in (project / "out" / "fleet.md").read_text()
    assert "s3cr3t-word" not in capsys.readouterr().out
