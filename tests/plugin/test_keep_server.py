"""A server is left up, found again and used; nobody else's, and nothing else than was asked for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from machines import put_in_place
from survivors import alive, none_of, until

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.process.guard import descendants
from pytest_vllm_gates.server.kept import registry as kept_registry
from pytest_vllm_gates.server.kept.registry import KeptState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Fakes, Project
    from pytest_vllm_gates.server.kept.registry import KeptEntry

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def state(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A state folder of this test's own, whose servers end with it."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    yield folder
    end_all()


def kept() -> list[KeptEntry]:
    return [*kept_registry.entries(kept_registry.root())]


def only() -> KeptEntry:
    """Return the one kept server there is."""
    (entry,) = kept()
    return entry


def processes(entry: KeptEntry) -> list[int]:
    """Return every process of a kept server, its keeper first."""
    assert entry.record
    return [
        entry.record.keeper.pid,
        entry.record.server.pid,
        *(process_id.pid for process_id in entry.record.tree),
    ]


def boot_of(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = project.verdict()["families"][0]["boot"]
    return found


def keep(
    project: Project, *arguments: str, faults: str = "", idle: str = "15m"
) -> pytest.RunResult:
    """Run one quick test with a server that stays."""
    return project.gates(f"--keep-server={idle}", "-k", "reports_its", *arguments, faults=faults)


def end_all() -> None:
    for entry in kept():
        kept_registry.stop(entry, force=True)


def test_the_next_run_uses_it_and_says_so(project: Project) -> None:
    result = project.gates("--keep-server")
    entry, first = only(), boot_of(project)
    pids = processes(entry)
    assert len(pids) == 3
    assert all(map(alive, pids))
    name = re.escape(entry.name)
    told = result.stdout.str()
    assert "a server is left up until it is idle for 15 min (--keep-server)" in told
    assert re.search(
        rf"^qwen3\.5: keeps its server {name} for other runs, until", told, re.MULTILINE
    )
    assert not first["evidence"]["kept"]["attached"]

    result = project.gates("--keep-server")
    assert result.ret == 0
    assert processes(only()) == pids
    told, second = result.stdout.str(), boot_of(project)
    assert re.search(
        rf"^qwen3\.5: uses the kept server {name}, booted \d+ s ago; attached in 0\.\d\d s$",
        told,
        re.MULTILINE,
    )
    assert second["evidence"]["kept"]["attached"]
    assert second["evidence"]["kept"]["attach_s"] < 1
    # The boot that is judged is the one there was.
    assert second["times"] == first["times"]
    assert second["evidence"]["command"] == first["evidence"]["command"]
    assert second["evidence"]["preflight"] == first["evidence"]["preflight"]
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_leaves_nothing_behind[]") == "N/A"
    assert set(outcomes.values()) == {"PASS"}
    # The log of the report goes back to the boot, and is no link into what will be gone.
    log = project.report / "qwen3.5" / "server.log"
    assert "a fake boots" in log.read_text()
    assert not log.is_symlink()


@pytest.mark.parametrize("times", [1, 2])
def test_a_kept_server_promotes_nothing(project: Project, times: int) -> None:
    for _ in range(times):
        result = project.gates("--keep-server", "--require-promotion")
    assert result.ret == 6
    assert project.verdict()["promotion"] == "HOLD"
    (reason,) = project.verdict()["reasons"]
    assert reason.startswith("the server of qwen3.5 is kept, ")
    assert reason.endswith("run it again without --keep-server")


def test_without_the_option_a_server_is_booted_and_the_kept_one_left_alone(
    project: Project,
) -> None:
    keep(project)
    entry = only()
    result = project.gates("--require-promotion")
    assert result.ret == 0
    assert "kept" not in boot_of(project)["evidence"]
    assert only() == entry


def test_what_differs_is_told_and_another_server_booted(project: Project) -> None:
    keep(project)
    first = only()
    result = keep(project, faults="spaces")
    assert result.ret == 0
    (line,) = [outline for outline in result.outlines if "a kept server is not used" in outline]
    assert line.endswith(f"{first.name} differs in variable FAKE")
    assert len(kept()) == 2
    # The line of one that is found is the only one.
    result = keep(project)
    assert "not used" not in result.stdout.str()
    assert f"uses the kept server {first.name}" in result.stdout.str()


def test_a_variable_of_the_terminal_is_no_difference_and_any_other_is(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(project)
    monkeypatch.setenv("SSH_TTY", "/dev/pts/9")
    assert "uses the kept server" in keep(project).stdout.str()
    monkeypatch.setenv("MY_TOKEN", "the-secret")
    result = keep(project)
    assert "differs in variable MY_TOKEN (not there)" in result.stdout.str()
    assert "the-secret" not in result.stdout.str()
    for path in kept_registry.root().rglob("record.json"):
        assert "the-secret" not in path.read_text()


def test_nobody_else_can_read_its_key(project: Project) -> None:
    keep(project)
    entry = only()
    key = project.key_file.read_text()
    assert (entry.folder / "key").read_text() == key
    for path in (kept_registry.root(), entry.folder):
        assert path.stat().st_mode & 0o777 == 0o700
    for name in ("key", "record.json"):
        assert (entry.folder / name).stat().st_mode & 0o777 == 0o600
    for path in entry.folder.iterdir():
        assert path.name == "key" or key not in path.read_text(), path
    for pid in processes(entry):
        assert key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert key not in (project.report / "verdict.json").read_text()


def test_a_key_that_others_can_read_is_not_used(project: Project) -> None:
    keep(project)
    first = only()
    (first.folder / "key").chmod(0o644)
    result = keep(project)
    assert f"{first.name} is not used: its key is not safe: " in result.stdout.str()
    assert "is open to others (mode 0644)" in result.stdout.str()
    assert result.ret == 0
    assert len(kept()) == 2


def test_a_folder_that_is_open_to_others_is_refused(project: Project) -> None:
    kept_registry.opened().chmod(0o755)
    result = keep(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = result.stderr.str()
    assert "is open to others (mode 0755): the keys of kept servers would not be safe" in told
    assert f"chmod 700 {kept_registry.root()}" in told


def test_a_folder_of_somebody_elses_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_registry.opened()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    result = keep(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "belongs to " in result.stderr.str()


def test_an_idle_server_ends_by_itself(project: Project) -> None:
    code = "def test_pids(launch, evidence): evidence['pids'] = launch.processes()"
    project.write("mine/test_pids.py", code)
    project.gates("--keep-server=1s", "-k", "test_pids", "mine")
    (gate,) = project.verdict()["families"][0]["gates"]
    pids = gate["tests"][0]["evidence"]["pids"]
    assert len(pids) == 2
    until(lambda: none_of(pids), "it is still there")
    until(lambda: not kept())


def test_a_run_that_uses_a_server_holds_it_and_says_how_long_it_may_be_idle(
    project: Project,
) -> None:
    project.write("mine/test_long.py", "import time\ndef test_long(server): time.sleep(3)\n")
    keep(project, idle="15m")
    entry = only()
    result = project.gates("--keep-server=1s", "-k", "test_long", "mine")
    assert result.ret == 0
    assert boot_of(project)["evidence"]["kept"]["name"] == entry.name
    until(lambda: not kept(), "the new limit is not kept")


def test_a_server_in_use_is_left_to_its_user(project: Project) -> None:
    keep(project)
    first = only()
    hold = first.hold
    assert hold.acquire()
    result = keep(project)
    assert f"{first.name} is in use" in result.stdout.str()
    assert len(kept()) == 2
    assert main(["servers", "stop", first.name]) == 1
    hold.release()
    assert main(["servers", "stop", first.name]) == 0


def test_a_server_that_does_not_boot_is_not_kept(project: Project) -> None:
    result = project.gates("--keep-server", faults="dies")
    assert result.ret == 1
    assert kept() == []
    assert "KV_NONE (certain)" in result.stdout.str()
    assert "ValueError: " in (project.report / "qwen3.5" / "server.log").read_text()
    assert boot_of(project)["explanation"]["id"] == "KV_NONE"


def test_a_server_that_dies_of_a_test_is_not_kept(project: Project) -> None:
    result = project.gates("--keep-server", faults="dies-after:3")
    assert "the server died while serving (exit status 9)" in result.stdout.str()
    assert kept() == []


def test_a_server_that_dies_while_attached_is_told_as_any_other(project: Project) -> None:
    project.gates("--keep-server", "-k", "reports_its", faults="dies-after:3")
    pids = processes(only())
    result = project.gates("--keep-server", faults="dies-after:3")
    told = result.stdout.str()
    assert "uses the kept server" in told
    assert "the server died while serving (exit status 9)" in told
    assert "torch.AcceleratorError: CUDA error" in told
    assert kept() == []
    assert none_of(pids)


def test_a_server_that_died_while_kept_is_told_by_the_next_run(project: Project) -> None:
    keep(project)
    entry = only()
    assert entry.record
    os.kill(entry.record.tree[0].pid, signal.SIGKILL)
    until(lambda: only().state is KeptState.DIED)
    result = keep(project)
    assert result.ret == 0
    told = result.stdout.str()
    assert f"{entry.name} died while it was kept (exit status 137)" in told
    log = project.report / "qwen3.5" / f"kept-{entry.name}.log"
    assert str(log) in told
    assert "a fake boots" in log.read_text()
    assert only().name != entry.name


def test_a_killed_keeper_takes_the_server_with_it(project: Project) -> None:
    keep(project)
    entry = only()
    pids = processes(entry)
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: none_of(pids))
    assert only().state is KeptState.LOST
    assert f"{entry.name}: its keeper is gone" in keep(project).stdout.str()
    assert only().name != entry.name


def test_a_server_that_no_longer_serves_is_ended_and_another_booted(project: Project) -> None:
    keep(project)
    entry = only()
    assert entry.record
    os.kill(entry.record.tree[0].pid, signal.SIGSTOP)
    # What hangs is given up soon; the time is the probe's own.
    result = keep(project)
    assert result.ret == 0
    assert f"{entry.name} was ended: it is not healthy any more" in result.stdout.str()
    assert none_of(processes(entry))
    assert only().name != entry.name


@pytest.mark.parametrize(
    ("number", "booted"),
    [(signal.SIGKILL, True), (signal.SIGKILL, False), (signal.SIGINT, False)],
)
def test_only_what_has_booted_outlives_a_run_that_ends_early(
    project: Project, number: int, *, booted: bool
) -> None:
    project.lane("" if booted else "chatters")
    project.write("mine/test_long.py", "import time\ndef test_long(server): time.sleep(60)\n")
    argv = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--model", "qwen3.5",
        "--lane", "fake", "--keep-server", "-k", "test_long", "mine",
    ]  # fmt: skip
    with subprocess.Popen(argv, cwd=project.path, stdout=subprocess.DEVNULL) as run:
        if booted:
            until(lambda: [entry.state for entry in kept()] == [KeptState.IN_USE])
            pids = processes(only())
        else:
            until(lambda: any(entry.folder.joinpath("server.log").exists() for entry in kept()))
            pids = descendants(1) and [
                pid for pid in descendants(1) if str(kept_registry.root()) in _environment(pid)
            ]
        run.send_signal(number)
        run.wait(20)
    if booted:
        until(lambda: only().state is KeptState.IDLE)
        assert not none_of(pids)
        assert "uses the kept server" in keep(project).stdout.str()
    else:
        until(lambda: none_of(pids), "a server that never served is left")
        until(lambda: not kept())


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode()
    except OSError:
        return ""


def test_a_server_that_runs_already_is_not_kept(project: Project, fakes: Fakes) -> None:
    server = fakes()
    result = project.pytest(
        "--model", "qwen3.5", "--base-url", server.base_url, "--keep-server", "-m", "boot"
    )
    assert result.ret == 0
    assert kept() == []
    assert "server is left up" not in result.stdout.str()


def test_a_baseline_is_of_a_boot_of_its_own(project: Project) -> None:
    keep(project)
    result = keep(project, "--update-baseline")
    assert "kept server" not in result.stdout.str()


def test_a_worker_of_xdist_finds_it_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(project.path / "bin", monkeypatch, "h100x8", 1)
    project.lane()
    for attached in (False, True):
        result = project.pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "--model", "qwen3.5", "--lane", "fake",
            "--gates-report", "out", "-n", "1", "--keep-server", "-k", "reports_its",
        )  # fmt: skip
        assert result.ret == 0, result.stdout.str()
        assert boot_of(project)["evidence"]["kept"]["attached"] is attached
        assert project.verdict()["promotion"] == "HOLD"
    assert processes(only())


@pytest.mark.parametrize("value", ["tests/", "0", "-3", "15x"])
def test_an_idle_limit_that_is_none_is_refused(project: Project, value: str) -> None:
    result = project.gates(f"--keep-server={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--keep-server {value!r} is no duration of at least 1s" in result.stderr.str()
