"""`vllm-gates bisect --nightly` and `lane new --commit`, with real wheels from a server on here.

uv resolves, makes and installs each environment; only the boot and the gates are replaced, as
the wheels have no server inside.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nightly.hosts_made import (  # noqa: F401 - a fixture
    MadeHosts,
    made_hosts_fixture,
    sha,
    write_wheel,
)

import pytest_vllm_gates
from pytest_vllm_gates.bisection import judge
from pytest_vllm_gates.bisection.judge import Judgement
from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.nightly.types import LABEL

Captured = pytest.CaptureFixture[str]

ASKED = ("bisect", "--good", "good", "--bad", "bad", "--model", "qwen3.5", "-m", "tools")
MINIATURE = Path(pytest_vllm_gates.__file__).parent / "miniatures" / "checkpoints" / "qwen3.5"
ANYWHERE = "manylinux_2_17_x86_64.manylinux_2_17_aarch64"


@pytest.fixture(name="project")
def project_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project whose lanes are the releases at both ends; commit 6 brought the defect."""
    project, links = tmp_path / "project", tmp_path / "links"
    for folder in (project / "lanes", links):
        folder.mkdir(parents=True)
    (project / "pyproject.toml").touch()
    monkeypatch.chdir(project)
    monkeypatch.setenv("VLLM_GATES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    for name, version in (("good", "0.31.0"), ("bad", "0.32.0")):
        write_wheel(links / f"vllm-{version}-cp38-abi3-{ANYWHERE}.whl", version)
        (project / "lanes" / f"{name}.txt").write_text(f"vllm=={version}\n")
        (project / "lanes" / f"{name}.toml").write_text(
            f'vllm = "{version}"\ndevice = "cuda"\nlock = "{name}.txt"\n'
        )

    def run(question: object, lane: Path, **rest: object) -> Judgement:
        del question, rest
        loaded = lanes.load(str(lane), project)
        found = environment.at_hand(loaded, cache=tmp_path / "cache").versions["vllm"]
        number = {"0.31.0": 0, "0.32.0": 9}.get(found)
        if number is None:
            number = int(found.partition("dev")[2].partition("+")[0])
        if number >= 6:
            return Judgement(TrialAnswer.BAD, "FAIL test_x", ("test_x",))
        return Judgement(TrialAnswer.GOOD, "passes")

    monkeypatch.setattr(judge, "run", run)
    return project


def hosts(made: MadeHosts) -> tuple[str, ...]:
    """Return the options that name the server's hosts."""
    return ("--wheels", made.hosts.wheels, "--commits", made.hosts.commits)


def test_commit_that_brought_a_defect_is_found(
    project: Path, made_hosts: MadeHosts, capsys: Captured
) -> None:
    for number in range(1, 9):
        made_hosts.wheel(number, machine=ANYWHERE, whole=True)
    assert main([*ASKED, "--nightly", *hosts(made_hosts)]) == 0
    out = capsys.readouterr().out
    good, bad = sha(5)[:LABEL], sha(6)[:LABEL]
    assert "vllm: 0.31.0 -> 0.32.0 (between: 8 commits, 8 with a wheel for this machine)" in out
    assert f"the culprit is vllm {bad} (last good {good}); both sides were tried three" in out
    assert f"  commit {bad}, 2026-07-07: [Kernel] Change number 6 (#40006)\n" in out
    assert f"  commits: https://github.com/vllm-project/vllm/compare/{good}...{bad}\n" in out
    (pinned,) = [line for line in out.splitlines() if "a lane without it" in line]
    lane = lanes.load(pinned.rpartition(": ")[2], project)
    assert lane.lock_path is not None
    assert f"vllm @ {made_hosts.hosts.wheels}/{sha(5)}/vllm-" in lane.lock_path.read_text()
    assert lane.start.server == ("-m", "vllm.entrypoints.launchers.api_server.entry")


@pytest.mark.slow
def test_commits_without_a_wheel_make_the_answer_a_range(
    project: Path, made_hosts: MadeHosts, capsys: Captured
) -> None:
    del project
    for number in (1, 3, 7):
        made_hosts.wheel(number, machine=ANYWHERE, whole=True)
    assert main([*ASKED, "--nightly", *hosts(made_hosts), "--json"]) == 3
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    labels = {number: sha(number)[:LABEL] for number in range(10)}
    (culprit,) = document["culprits"]
    assert (culprit["last_good"], culprit["first_bad"]) == (labels[3], labels[7])
    assert culprit["without_wheel"] == [labels[4], labels[5], labels[6]]
    assert document["sentence"].startswith(
        f"the culprit is vllm {labels[7]} (last good {labels[3]}), or one of "
        f"{labels[4]}, {labels[5]}, {labels[6]}; not certain"
    )
    assert document["reasons"] == ["without a wheel between the two: 3 commits"]


def test_dry_run_counts_commits_wheels_and_downloads(
    project: Path, made_hosts: MadeHosts, capsys: Captured
) -> None:
    for number in range(1, 5):
        made_hosts.wheel(number, machine=ANYWHERE, whole=True)
    assert main([*ASKED, "--nightly", *hosts(made_hosts), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "(between: 8 commits, 4 with a wheel for this machine)" in out
    assert "along vllm: 6 versions" in out
    assert "each bundle at a commit downloads a wheel of 0 MB and makes its own environment" in out
    assert not (project / ".vllm-gates").exists()


def test_lane_of_a_commit_is_an_end_like_any_other(
    project: Path, made_hosts: MadeHosts, capsys: Captured
) -> None:
    for number in range(1, 9):
        made_hosts.wheel(number, machine=ANYWHERE, whole=True)
    new = ("lane", "new", "bad", "--vllm", "0.32.0", "--device", "cuda", "--force")
    model = ("--model", str(MINIATURE))
    assert main([*new, *model, "--commit", sha(8), "--wheels", made_hosts.hosts.wheels]) == 0
    out = capsys.readouterr().out
    assert f"  wheel: {made_hosts.hosts.wheels}/{sha(8)}/vllm-0.23.1rc1.dev8%2Bg" in out
    assert "  start and flags as of release 0.32.0; the lock is for this machine only\n" in out
    lane = lanes.load("bad", project)
    assert lane.title == f"vLLM at commit {sha(8)[:LABEL]} on an NVIDIA GPU"
    assert main([*ASKED, "--nightly", *hosts(made_hosts)]) == 0
    out = capsys.readouterr().out
    assert "(between: 7 commits, 7 with a wheel for this machine)" in out
    assert f"the culprit is vllm {sha(6)[:LABEL]} (last good {sha(5)[:LABEL]});" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [((*ASKED, "--wheels", "https://h.example"), "need --nightly: add it"),
     ((*ASKED, "--nightly", "--wheels", "h.example"), "expected an address"),
     (("lane", "new", "n", "--vllm", "0.32.0", "--device", "cpu", "--commit", "0" * 40),
      "--commit is for CUDA"),
     (("lane", "new", "n", "--vllm", "0.32.0", "--device", "cuda", "--commit", "abc"),
      "expected all 40 digits")],
)  # fmt: skip
def test_invalid_options_are_refused(
    project: Path, capsys: Captured, words: tuple[str, ...], message: str
) -> None:
    del project
    assert main([*words]) == 2
    assert message in capsys.readouterr().err


def test_commit_without_a_wheel_does_not_make_a_lane(
    project: Path, made_hosts: MadeHosts, capsys: Captured
) -> None:
    new = ("lane", "new", "n", "--vllm", "0.32.0", "--device", "cuda", "--commit", sha(3))
    assert main([*new, "--wheels", made_hosts.hosts.wheels]) == 2
    assert f"commit {sha(3)} has no wheel for this machine" in capsys.readouterr().err
    assert not (project / "lanes" / "n.toml").exists()
