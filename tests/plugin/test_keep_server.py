"""A server is kept, found again and used, if it serves exactly what a run needs."""

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


def kept_entries() -> list[KeptEntry]:
    return [*kept_registry.entries(kept_registry.root())]


def only_entry() -> KeptEntry:
    """Return the one kept server there is."""
    (entry,) = kept_entries()
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
    boot: dict[str, Any] = project.verdict()["families"][0]["boot"]
    return boot


def keep(
    project: Project, *arguments: str, faults: str = "", idle: str = "15m"
) -> pytest.RunResult:
    """Run one quick test with a server that stays."""
    return project.gates(f"--keep-server={idle}", "-k", "reports_its", *arguments, faults=faults)


def end_all() -> None:
    for entry in kept_entries():
        kept_registry.stop(entry, force=True)


def test_next_run_uses_the_kept_server(project: Project) -> None:
    result = project.gates("--keep-server")
    entry, first = only_entry(), boot_of(project)
    pids = processes(entry)
    assert len(pids) == 4
    assert all(map(alive, pids))
    name = re.escape(entry.name)
    output = result.stdout.str()
    assert "a server is left up until it is idle for 15 min (--keep-server)" in output
    assert re.search(
        rf"^qwen3\.5: keeps its server {name} for other runs, until", output, re.MULTILINE
    )
    assert not first["evidence"]["kept"]["attached"]

    result = project.gates("--keep-server")
    assert result.ret == 0
    assert processes(only_entry()) == pids
    output, second = result.stdout.str(), boot_of(project)
    assert re.search(
        rf"^qwen3\.5: uses the kept server {name}, booted \d+ s ago; attached in 0\.\d\d s$",
        output,
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
    # The log of the report begins at the boot, and is not a link into a folder that will be gone.
    log = project.report / "qwen3.5" / "server.log"
    assert "a fake boots" in log.read_text()
    assert not log.is_symlink()


@pytest.mark.parametrize("times", [1, 2])
def test_kept_server_prevents_the_promotion(project: Project, times: int) -> None:
    for _ in range(times):
        result = project.gates("--keep-server", "--require-promotion")
    assert result.ret == 6
    assert project.verdict()["promotion"] == "HOLD"
    (reason,) = project.verdict()["reasons"]
    assert reason.startswith("the server of qwen3.5 is kept, ")
    assert reason.endswith("run it again without --keep-server")


def test_without_the_option_a_new_server_is_booted(
    project: Project,
) -> None:
    keep(project)
    entry = only_entry()
    result = project.gates("--require-promotion")
    assert result.ret == 0
    assert "kept" not in boot_of(project)["evidence"]
    assert only_entry() == entry


def test_difference_is_named_and_another_server_booted(project: Project) -> None:
    keep(project)
    first = only_entry()
    result = keep(project, faults="spaces")
    assert result.ret == 0
    (line,) = [outline for outline in result.outlines if "a kept server is not used" in outline]
    assert line.endswith(f"{first.name} differs in variable FAKE")
    assert len(kept_entries()) == 2
    # The line of one that is found is the only one.
    result = keep(project)
    assert "not used" not in result.stdout.str()
    assert f"uses the kept server {first.name}" in result.stdout.str()


def test_terminal_variables_are_not_a_difference(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(project)
    monkeypatch.setenv("SSH_TTY", "/dev/pts/9")
    assert "uses the kept server" in keep(project).stdout.str()
    monkeypatch.setenv("MY_TOKEN", "the-secret")
    result = keep(project)
    assert "differs in variable MY_TOKEN (added)" in result.stdout.str()
    assert "the-secret" not in result.stdout.str()
    for path in kept_registry.root().rglob("record.json"):
        assert "the-secret" not in path.read_text()


def test_key_is_readable_by_its_owner_only(project: Project) -> None:
    keep(project)
    entry = only_entry()
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


def test_key_readable_by_others_is_not_used(project: Project) -> None:
    keep(project)
    first = only_entry()
    (first.folder / "key").chmod(0o644)
    result = keep(project)
    assert f"{first.name} is not used: its key is not safe: " in result.stdout.str()
    assert "is open to others (mode 0644)" in result.stdout.str()
    assert result.ret == 0
    assert len(kept_entries()) == 2


def test_folder_open_to_others_is_refused(project: Project) -> None:
    kept_registry.open_root().chmod(0o755)
    result = keep(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = result.stderr.str()
    assert "is open to others (mode 0755): the keys of kept servers would not be safe" in errors
    assert f"chmod 700 {kept_registry.root()}" in errors


def test_folder_of_another_user_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_registry.open_root()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    result = keep(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "belongs to " in result.stderr.str()


def test_idle_server_ends_after_its_limit(project: Project) -> None:
    code = "def test_pids(launch, evidence): evidence['pids'] = launch.processes()"
    project.write("mine/test_pids.py", code)
    project.gates("--keep-server=1s", "-k", "test_pids", "mine")
    (gate,) = project.verdict()["families"][0]["gates"]
    pids = gate["tests"][0]["evidence"]["pids"]
    assert len(pids) == 3
    until(lambda: none_of(pids), "it is still there")
    until(lambda: not kept_entries())


@pytest.mark.slow
def test_run_sets_a_new_idle_limit_of_the_server_it_uses(
    project: Project,
) -> None:
    project.write("mine/test_long.py", "import time\ndef test_long(server): time.sleep(3)\n")
    keep(project, idle="15m")
    entry = only_entry()
    result = project.gates("--keep-server=1s", "-k", "test_long", "mine")
    assert result.ret == 0
    assert boot_of(project)["evidence"]["kept"]["name"] == entry.name
    until(lambda: not kept_entries(), "the new limit is not kept")


def test_server_in_use_is_left_to_its_run(project: Project) -> None:
    keep(project)
    first = only_entry()
    hold = first.hold
    assert hold.acquire()
    result = keep(project)
    assert f"{first.name} is in use" in result.stdout.str()
    assert len(kept_entries()) == 2
    assert main(["servers", "stop", first.name]) == 1
    hold.release()
    assert main(["servers", "stop", first.name]) == 0


def test_a_server_that_does_not_boot_is_not_kept(project: Project) -> None:
    result = project.gates("--keep-server", faults="dies")
    assert result.ret == 1
    assert kept_entries() == []
    assert "KV_NONE (certain)" in result.stdout.str()
    assert "ValueError: " in (project.report / "qwen3.5" / "server.log").read_text()
    assert boot_of(project)["explanation"]["id"] == "KV_NONE"


def test_a_server_that_dies_of_a_test_is_not_kept(project: Project) -> None:
    result = project.gates("--keep-server", faults="dies-after:3")
    assert "the server died while serving (exit status 9)" in result.stdout.str()
    assert kept_entries() == []


@pytest.mark.slow
def test_death_of_an_attached_kept_server_is_reported(project: Project) -> None:
    project.gates("--keep-server", "-k", "reports_its", faults="dies-after:3")
    pids = processes(only_entry())
    result = project.gates("--keep-server", faults="dies-after:3")
    output = result.stdout.str()
    assert "uses the kept server" in output
    assert "the server died while serving (exit status 9)" in output
    assert "torch.AcceleratorError: CUDA error" in output
    assert kept_entries() == []
    assert none_of(pids)


def test_next_run_reports_a_server_that_died_while_kept(project: Project) -> None:
    keep(project)
    entry = only_entry()
    assert entry.record
    os.kill(entry.record.tree[-1].pid, signal.SIGKILL)
    until(lambda: only_entry().state is KeptState.DIED)
    result = keep(project)
    assert result.ret == 0
    output = result.stdout.str()
    assert f"{entry.name} died while it was kept (exit status 137)" in output
    log = project.report / "qwen3.5" / f"kept-{entry.name}.log"
    assert str(log) in output
    assert "a fake boots" in log.read_text()
    assert only_entry().name != entry.name


def test_killed_keeper_ends_its_server(project: Project) -> None:
    keep(project)
    entry = only_entry()
    pids = processes(entry)
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: none_of(pids))
    assert only_entry().state is KeptState.LOST
    assert f"{entry.name}: its keeper is gone" in keep(project).stdout.str()
    assert only_entry().name != entry.name


def test_unhealthy_kept_server_is_replaced(project: Project) -> None:
    keep(project)
    entry = only_entry()
    assert entry.record
    os.kill(entry.record.tree[-1].pid, signal.SIGSTOP)
    # A hanging server is abandoned soon; the time is the probe's own.
    result = keep(project)
    assert result.ret == 0
    assert f"{entry.name} was ended: it is no longer healthy" in result.stdout.str()
    assert none_of(processes(entry))
    assert only_entry().name != entry.name


@pytest.mark.parametrize(
    ("number", "booted"),
    [
        (signal.SIGKILL, True),
        pytest.param(signal.SIGKILL, False, marks=pytest.mark.slow),
        (signal.SIGINT, False),
    ],
)
def test_only_booted_servers_outlive_an_interrupted_run(
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
            until(lambda: [entry.state for entry in kept_entries()] == [KeptState.IN_USE])
            pids = processes(only_entry())
        else:
            until(
                lambda: any(
                    entry.folder.joinpath("server.log").exists() for entry in kept_entries()
                )
            )
            pids = descendants(1) and [
                pid for pid in descendants(1) if str(kept_registry.root()) in _environment(pid)
            ]
        run.send_signal(number)
        run.wait(20)
    if booted:
        until(lambda: only_entry().state is KeptState.IDLE)
        assert not none_of(pids)
        assert "uses the kept server" in keep(project).stdout.str()
    else:
        until(lambda: none_of(pids), "a server that never served is left")
        until(lambda: not kept_entries())


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode()
    except OSError:
        return ""


def test_attached_server_is_not_kept(project: Project, fakes: Fakes) -> None:
    server = fakes()
    result = project.pytest(
        "--model", "qwen3.5", "--base-url", server.base_url, "--keep-server", "-m", "boot"
    )
    assert result.ret == 0
    assert kept_entries() == []
    assert "server is left up" not in result.stdout.str()


@pytest.mark.slow
def test_baseline_needs_a_new_boot(project: Project) -> None:
    keep(project)
    result = keep(project, "--update-baseline")
    assert "kept server" not in result.stdout.str()


def test_xdist_worker_finds_the_kept_server(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert processes(only_entry())


@pytest.mark.parametrize("value", ["tests/", "0", "-3", "15x"])
def test_invalid_idle_limit_is_refused(project: Project, value: str) -> None:
    result = project.gates(f"--keep-server={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        f"--keep-server: expected a duration of at least 1s (90s, 30m, 2h), got {value!r}"
        in result.stderr.str()
    )
