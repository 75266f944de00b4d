"""The verdict of a REJECT names the lane to go back to, with its commands."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.session.rollback import rollback
from pytest_vllm_gates.verdict.verdict import Promotion

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.session.run import Run

LOCK = "vllm==0.31.0\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "lanes").mkdir()
    for name in ("stable", "canary"):
        (tmp_path / f"lanes/{name}.toml").write_text(f'title = "{name}"\nlock = "{name}.txt"\n')
        (tmp_path / f"lanes/{name}.txt").write_text(LOCK)
    return tmp_path


def run(project: Path, against: str | None = "stable", lane: str = "canary") -> Run:
    family = families.load("glm", project)
    stand_in = SimpleNamespace(
        lane=lanes.load(lane, project),
        against=lanes.load(against, project) if against else None,
        options=SimpleNamespace(rootdir=project, overlay=True),
        subjects=[
            SimpleNamespace(
                family=family, checkpoint=checkpoints_resolve.resolve(family, "miniature")
            )
        ],
        server_env={},
    )
    return cast("Run", stand_in)


def promoted(lane: str, created: str = "2026-02-01T00:00:00+00:00") -> dict[str, Any]:
    return {"promotion": "PROMOTE", "lane": lane, "created": created}


def test_rollback_names_the_serving_lane_its_lock_and_commands(project: Path) -> None:
    document = rollback(run(project), Promotion.REJECT)
    assert document is not None
    command = document.pop("command").splitlines()
    assert document == {
        "lane": "stable",
        "lock": str(project / "lanes/stable.txt"),
        "lock_sha256": hashlib.sha256(LOCK.encode()).hexdigest(),
    }
    assert command[0] == 'PYTHON="$(vllm-gates lane make stable)"'
    assert "-m vllm.entrypoints.openai.api_server --model " in command[1]


def test_no_rollback_without_a_reject(project: Path) -> None:
    assert rollback(run(project), Promotion.PROMOTE) is None
    assert rollback(run(project, None), Promotion.REJECT) is None


def test_rollback_to_the_last_promoted_lane(project: Path) -> None:
    document = rollback(run(project, None), Promotion.REJECT, [promoted("stable")])
    assert document is not None
    assert (document["lane"], document["lock"]) == ("stable", str(project / "lanes/stable.txt"))


def test_removed_lane_is_named_with_its_git_history(project: Path) -> None:
    document = rollback(run(project, None), Promotion.REJECT, [promoted("retired")])
    assert document is not None
    assert (document["lane"], document["lock"]) == ("retired", None)
    assert document["command"].endswith("git log --stat -- lanes/retired.toml")


def test_changed_lane_is_checked_out_as_it_was_promoted(project: Path) -> None:
    def git(*words: str, date: str = "2026-01-01T00:00:00+00:00") -> None:
        env = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date, "HOME": str(project)}
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *who, *words], cwd=project, env=env, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "promoted")
    lock = project / "lanes/canary.txt"
    lock.write_text("vllm==0.32.0\n")
    git("commit", "-am", "upgraded", date="2026-03-01T00:00:00+00:00")
    document = rollback(run(project, None), Promotion.REJECT, [promoted("canary")])
    assert document is not None
    assert (document["lane"], document["lock"], document["lock_sha256"]) == ("canary", None, None)
    back, made, *_ = document["command"].splitlines()
    assert made == 'PYTHON="$(vllm-gates lane make canary)"'
    subprocess.run(["bash", "-eu", "-c", back], cwd=project, check=True, capture_output=True)
    assert lock.read_text() == LOCK


def test_shipped_lane_has_no_rollback_to_itself(project: Path) -> None:
    assert rollback(run(project, None, "cpu"), Promotion.REJECT, [promoted("cpu")]) is None


def test_package_installed_in_the_project_is_not_its_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = shutil.copytree(lanes.SHIPPED, project / ".venv/lib/pytest_vllm_gates/lanes")
    monkeypatch.setattr(lanes, "SHIPPED", shipped)
    assert rollback(run(project, None, "cpu"), Promotion.REJECT, [promoted("cpu")]) is None
    # The project's own lane of a shipped lock: the file alone has a history here.
    (project / "lanes/own.toml").write_text('title = "own"\nlock = "cpu.txt"\n')
    document = rollback(run(project, None, "own"), Promotion.REJECT, [promoted("own")])
    assert document is not None
    assert document["command"].splitlines()[0].endswith("-- lanes/own.toml")
