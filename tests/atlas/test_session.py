"""Each run has its own folder: its lane lies there, and its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from environment.lane_site import LOCK, Site, site_fixture  # noqa: F401 - a fixture

from pytest_vllm_gates.atlas.plan import GATES
from pytest_vllm_gates.atlas.session import AtlasSession
from pytest_vllm_gates.bisection import gates_run
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes import new
from pytest_vllm_gates.lanes.new import NewLane

if TYPE_CHECKING:
    from pathlib import Path


def session(site: Site) -> AtlasSession:
    atlas = site.project / ".vllm-gates" / "atlas"
    return AtlasSession(site.project, atlas, "cpu", site.cache, site.said.append)


@pytest.fixture(name="composed")
def composed_fixture(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the resolution of a release, which queries the index; return the queries."""
    asked: list[str] = []

    def compose(file: Path, version: str, device: str) -> NewLane:
        asked.append(f"{version} {device}")
        text = f'title = "x"\nvllm = "{version}"\ndevice = "{device}"\nlock = "{file.stem}.txt"\n'
        return NewLane({file.with_suffix(".txt"): LOCK, file: text}, ())

    monkeypatch.setattr(new, "compose", compose)
    return asked


def test_lane_is_made_once_for_a_release(site: Site, composed: list[str]) -> None:
    first = session(site).lane("0.31.0")
    assert first == session(site).atlas / "lanes" / "cpu-0.31.0.toml"
    assert session(site).lane("0.31.0") == first
    assert composed == ["0.31.0 cpu"]


def test_lane_of_the_project_comes_before_one_made_here(site: Site, composed: list[str]) -> None:
    site.write("mine.txt", LOCK)
    mine = site.write(
        "mine.toml", 'title = "x"\nvllm = "0.31.0"\ndevice = "cpu"\nlock = "mine.txt"\n'
    )
    site.write("broken.toml", "title = 1\n")
    assert session(site).lane("0.31.0") == mine
    assert session(site).lane("0.30.0") != mine
    assert composed == ["0.30.0 cpu"]


@pytest.mark.usefixtures("composed")
def test_gates_are_run_with_that_lane_in_a_folder_of_their_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[list[str], Path]] = []

    def run(arguments: list[str], *, folder: Path, **rest: Any) -> tuple[int, Any]:
        del rest
        runs.append((arguments, folder))
        return 1, {"families": []}

    monkeypatch.setattr(gates_run, "run", run)
    made = session(site)
    lane = made.lane("0.31.0")
    assert made.make("0.31.0", "glm/flash", lane) == ""
    assert runs == [
        (
            ["--model", "glm/flash", "--lane", str(lane), "-m", GATES],
            made.atlas / "0.31.0" / "glm-flash",
        )
    ]
    assert len(site.made()) == 1


@pytest.mark.usefixtures("composed")
def test_run_without_a_verdict_is_reported_with_its_log(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates_run, "run", lambda *_, **__: (4, None))
    made = session(site)
    problem = made.make("0.31.0", "glm", made.lane("0.31.0"))
    assert problem.startswith("no verdict: pytest ended with 4, see ")
    assert problem.endswith("0.31.0/glm/pytest.log")


@pytest.mark.usefixtures("composed")
def test_environment_that_cannot_be_made_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "network")
    made = session(site)
    assert "a package index cannot be reached" in made.make("0.31.0", "glm", made.lane("0.31.0"))


def test_release_that_does_not_resolve_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compose(*_: object, **__: object) -> NewLane:
        raise UserError("no such release")

    monkeypatch.setattr(new, "compose", compose)
    with pytest.raises(UserError, match="no such release"):
        session(site).lane("9.9.9")
