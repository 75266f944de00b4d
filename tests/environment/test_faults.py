"""No failure while an environment is made leaves an incomplete one that is used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from environment.lane_site import Site, site_fixture  # noqa: F401, TC001 - a fixture
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

MAKE = """
import sys
from pathlib import Path
from pytest_vllm_gates.environment import environment, uv
from pytest_vllm_gates.catalog import lane
program, project, cache = sys.argv[1:]
uv.find_uv_bin = lambda: program
found = environment.prepare(
    lane.load("small", Path(project)), cache=Path(cache), progress=print
)
print("made" if found.made else "found", flush=True)
"""

LIMIT_S = 20.0


def start(site: Site, **env: str) -> subprocess.Popen[str]:
    """Prepare the lane in a separate process."""
    program = site.calls_file.with_name("uv")
    return subprocess.Popen(
        [sys.executable, "-c", MAKE, str(program), str(site.project), str(site.cache)],
        env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until_installing(site: Site, calls: int = 2) -> None:
    """Wait until uv is in the middle of an install."""
    deadline = time.monotonic() + LIMIT_S
    while not (
        len(site.calls()) >= calls
        and list(site.folder.glob("*.building-*/*/lib/*/site-packages/*.dist-info"))
    ):
        assert time.monotonic() < deadline, "uv was never called"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_interrupted_build_leaves_no_usable_environment(
    site: Site, tmp_path: Path, number: signal.Signals
) -> None:
    maker = start(site, FAKE_UV_GO=str(tmp_path / "go"))
    until_installing(site)
    maker.send_signal(number)
    maker.communicate(timeout=LIMIT_S)
    assert all(".building-" in name for name in site.made())
    second = site.prepare()
    assert second.made
    assert len(site.made()) == 1, "what the dead builder left is removed"


def test_ctrl_c_removes_the_build_folder(site: Site, tmp_path: Path) -> None:
    maker = start(site, FAKE_UV_GO=str(tmp_path / "go"))
    until_installing(site)
    pressed = time.monotonic()
    maker.send_signal(signal.SIGINT)
    maker.communicate(timeout=LIMIT_S)
    assert time.monotonic() - pressed < 5
    assert site.made() == []


def test_leftovers_of_dead_builders_are_removed(site: Site, tmp_path: Path) -> None:
    maker = start(site, FAKE_UV_GO=str(tmp_path / "go"))
    until_installing(site)
    maker.kill()
    maker.communicate(timeout=LIMIT_S)
    time.sleep(0.3)  # the guard ends uv
    site.write("other.toml", 'title = "other"\nlock = "other.txt"\n')
    site.write("other.txt", "beta==1.0\n")
    site.prepare("other")
    assert [name.partition("-")[0] for name in site.made()] == ["other"]


def test_folder_of_a_living_builder_is_left_alone(site: Site, tmp_path: Path) -> None:
    go = tmp_path / "go"
    maker = start(site, FAKE_UV_GO=str(go))
    until_installing(site)
    site.write("other.toml", 'title = "other"\nlock = "other.txt"\n')
    site.write("other.txt", "beta==1.0\n")
    site.prepare("other")
    go.touch()
    out, err = maker.communicate(timeout=LIMIT_S)
    assert out.splitlines()[-1] == "made", err


def test_second_run_waits_for_the_first_and_reports_it(site: Site, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = start(site, FAKE_UV_GO=str(go))
    until_installing(site)
    threading.Timer(1.5, go.touch).start()
    second = site.prepare()
    out, err = first.communicate(timeout=LIMIT_S)
    assert out.splitlines()[-1] == "made", err
    assert not second.made
    assert second.vllm == "0.32.0"
    assert "lane small: another run is making its environment (0 s)" in site.said
    assert len(site.calls()) == 2


def test_waiting_run_builds_if_the_builder_dies(site: Site, tmp_path: Path) -> None:
    first = start(site, FAKE_UV_GO=str(tmp_path / "go"))
    until_installing(site)
    threading.Timer(0.5, first.kill).start()
    assert site.prepare().made
    first.communicate(timeout=LIMIT_S)
    assert len(site.made()) == 1


@pytest.mark.parametrize(
    ("trouble", "cause", "advice"),
    [
        ("disk", "the disk is full", "free some space under "),
        ("network", "a package index cannot be reached", "check the network and the sources"),
        ("no-version", "the configured package sources do not have what the lock pins",
         "see your sources: python -m pip config list"),
        ("offline", "uv runs without the network (offline), and its cache does not have what the "
         "lock pins", "unset UV_OFFLINE"),
        ("nothing-known", "uv ended with status 1", "then run again"),
    ],
)  # fmt: skip
def test_failure_names_lane_cause_next_step_and_uv_output(
    site: Site, monkeypatch: pytest.MonkeyPatch, trouble: str, cause: str, advice: str
) -> None:
    monkeypatch.setenv("FAKE_UV", trouble)
    with pytest.raises(UserError) as failed:
        site.prepare()
    lines = str(failed.value).splitlines()
    assert lines[0] == f"lane small: its environment could not be made: {cause}"
    assert lines[1].startswith(advice)
    assert lines[2].startswith("  uv: error: ")
    assert site.made() == []
    monkeypatch.delenv("FAKE_UV")
    assert site.prepare().made


def test_missing_torch_message_names_both_sources(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "no-torch-anywhere")
    with pytest.raises(UserError) as failed:
        site.prepare()
    assert str(failed.value).splitlines()[0] == (
        "lane small: torch==2.13.0+cpu for Python 3.11.7 is in no configured source, and "
        "PyTorch's index (torch backend 'cpu') did not give it either: "
        "a package index cannot be reached"
    )


def test_install_that_differs_from_the_lock_is_discarded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "wrong")
    with pytest.raises(UserError) as failed:
        site.prepare()
    assert "uv's packages differ from" in str(failed.value)
    assert "  - alpha 9.9 is installed, the lock requires ==1.0" in str(failed.value)
    assert site.made() == []


def test_unwritable_cache_is_a_user_error(site: Site) -> None:
    site.cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"(?s)Not a directory.*VLLM_GATES_CACHE"):
        site.prepare()


def test_missing_uv_names_the_command_that_installs_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("pytest_vllm_gates.environment.uv.find_uv_bin", find_nothing)
    with pytest.raises(UserError, match="install it: python -m pip install uv"):
        site.prepare()
